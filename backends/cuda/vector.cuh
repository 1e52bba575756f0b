#pragma once
// Several elements at once: 16 bytes where addresses allow it.

#include <bit>
#include <cstdint>
#include <type_traits>

#include "launch.cuh"

namespace wengert::cuda::inline WENGERT_CUDA_BUILD {

/// Elements of 16 bytes.
template <class T>
constexpr int pack = 16 / sizeof(T);

template <class T, int n>
struct Vec {
  T at[n];
};

template <class T>
using Word16 = std::conditional_t<sizeof(T) == 4, float4, double2>;

/// n elements, of which the kernel writes none.
template <int n, class T>
__device__ inline Vec<T, n> load(const T* from) {
  if constexpr (n == 1)
    return {{__ldg(from)}};
  else
    return std::bit_cast<Vec<T, n>>(__ldg(reinterpret_cast<const Word16<T>*>(from)));
}
/// n elements that the kernel may write, too.
template <int n, class T>
__device__ inline Vec<T, n> load_mutable(const T* from) {
  if constexpr (n == 1)
    return {{*from}};
  else
    return std::bit_cast<Vec<T, n>>(*reinterpret_cast<const Word16<T>*>(from));
}
template <int n, class T>
__device__ inline void store(T* to, const Vec<T, n>& values) {
  if constexpr (n == 1)
    *to = values.at[0];
  else
    *reinterpret_cast<Word16<T>*>(to) = std::bit_cast<Word16<T>>(values);
}
/// A store that leaves the cache to others.
template <int n, class T>
__device__ inline void store_streaming(T* to, const Vec<T, n>& values) {
  if constexpr (n == 1)
    __stcs(to, values.at[0]);
  else
    __stcs(reinterpret_cast<Word16<T>*>(to), std::bit_cast<Word16<T>>(values));
}

/// Whether all addresses are multiples of 16; null is.
template <class... P>
bool aligned(const P*... addresses) {
  return ((reinterpret_cast<std::uintptr_t>(addresses) % 16 == 0) && ...);
}

/// Calls f with std::integral_constant: pack<T> if `wide`, else 1.
template <class T, class F>
void with_width(bool wide, F f) {
  if (wide)
    f(std::integral_constant<int, pack<T>>());
  else
    f(std::integral_constant<int, 1>());
}

/// Calls f with a zero of the type that indices below `count` are computed in: 32 bits divide much faster than 64. The
/// emulator goes over to 64 early, so that tests see both.
template <class F>
void with_index(std::int64_t count, F f) {
#ifdef WENGERT_CUDA_EMULATED
  constexpr std::int64_t most = 1000;
#else
  constexpr std::int64_t most = UINT32_MAX;
#endif
  if (count <= most)
    f(std::uint32_t{0});
  else
    f(std::uint64_t{0});
}

}  // namespace wengert::cuda::inline WENGERT_CUDA_BUILD
