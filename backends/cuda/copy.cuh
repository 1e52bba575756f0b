#pragma once
// Fill, count, and strided copies, for every element type.

#include <limits>
#include <type_traits>

#include "kernels.hpp"
#include "vector.cuh"
#include "wengert/walk.hpp"

namespace wengert::cuda::inline WENGERT_CUDA_BUILD {

/// Calls f with a zero of the C++ type of `dtype`.
template <class F>
void with_type(DType dtype, F f) {
  switch (dtype) {
    case DType::float32: return f(float{});
    case DType::float64: return f(double{});
    case DType::int32: return f(std::int32_t{});
    case DType::int64: return f(std::int64_t{});
  }
}

/// What C++ does, except that a floating value outside an integer type becomes its nearest value, and NaN becomes 0.
template <class To, class From>
__host__ __device__ To convert(From value) {
  if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    constexpr From limit = -static_cast<From>(std::numeric_limits<To>::min());  // a power of two, exact
    if (value != value) return 0;
    if (value >= limit) return std::numeric_limits<To>::max();
    if (value <= -limit) return std::numeric_limits<To>::min();
  }
  return static_cast<To>(value);
}

template <class T, int n>
__global__ void fill_kernel(T value, T* out, std::int64_t count) {
  Vec<T, n> values;
  WENGERT_UNROLL
  for (int i = 0; i < n; ++i) values.at[i] = value;
  const std::int64_t packs = count / n;
  for (std::int64_t i = first_thread(); i < packs; i += grid_threads()) store(out + i * n, values);
  for (std::int64_t e = packs * n + first_thread(); e < count; e += grid_threads()) out[e] = value;
}

template <class T>
__global__ void iota_kernel(T start, T* out, std::int64_t count) {
  for (std::int64_t e = first_thread(); e < count; e += grid_threads()) out[e] = start + static_cast<T>(e);
}

/// A copy of contiguous elements.
inline bool contiguous(const Walk& walk) { return walk.rank == 1 && walk.a[0] == 1 && walk.b[0] == 1; }

/// Makes `walk` the same copy in units of n elements, if there is one.
inline bool widen(Walk& walk, std::int64_t n) {
  if (walk.a[0] != 1 || walk.b[0] != 1 || walk.extents[0] % n != 0) return false;
  for (std::int64_t axis = 1; axis < walk.rank; ++axis)
    if (walk.a[axis] % n != 0 || walk.b[axis] % n != 0) return false;
  walk.extents[0] /= n;
  for (std::int64_t axis = 1; axis < walk.rank; ++axis) walk.a[axis] /= n, walk.b[axis] /= n;
  return true;
}

template <class From, class To, class I>
__global__ void copy_kernel(Walk walk, const From* from, To* to, std::int64_t count) {
  for (std::int64_t e = first_thread(); e < count; e += grid_threads()) {
    I rest = static_cast<I>(e);
    std::int64_t source = 0, target = 0;
    for (std::int64_t axis = 0; axis < walk.rank; ++axis) {
      const I extent = static_cast<I>(walk.extents[axis]), i = rest % extent;
      rest /= extent;
      source += static_cast<std::int64_t>(i) * walk.a[axis];
      target += static_cast<std::int64_t>(i) * walk.b[axis];
    }
    if constexpr (std::is_same_v<From, To>)
      to[target] = from[source];
    else
      to[target] = convert<To>(from[source]);
  }
}

template <class From, class To>
void launch_copy(const Walk& walk, const From* from, To* to) {
  std::int64_t count = 1;
  for (std::int64_t axis = 0; axis < walk.rank; ++axis) count *= walk.extents[axis];
  with_index(count, [&](auto index) {
    launch({"copy_strided", blocks_of_threads(count)}, copy_kernel<From, To, decltype(index)>, walk, from, to, count);
  });
}

template <class T>
void Kernels<T>::fill(Tensor& out, double value) {
  void* data = out.storage().write();
  const std::int64_t count = out.numel();
  with_type(out.dtype(), [&]<class To>(To) {
    auto* to = static_cast<To*>(data);
    constexpr int n = std::is_floating_point_v<To> ? pack<To> : 1;
    if (n > 1 && aligned(to))
      launch({"fill", blocks_for(count, block_threads * n)}, fill_kernel<To, n>, convert<To>(value), to, count);
    else
      launch({"fill", blocks_of_threads(count)}, fill_kernel<To, 1>, convert<To>(value), to, count);
  });
}

template <class T>
void Kernels<T>::iota(Tensor& out, std::int64_t start) {
  launch({"iota", blocks_of_threads(out.numel())}, iota_kernel<std::int64_t>, start, write<std::int64_t>(out),
         out.numel());
}

template <class T>
void Kernels<T>::copy_strided(const Shape& extent, const Tensor& in, const StridedView& from, Tensor& out,
                              const StridedView& to) {
  const void* source = in.storage().read();
  void* target = out.storage().write();
  if (extent.numel() == 0) return;
  Walk walk(extent, from, to);
  with_type(in.dtype(), [&]<class From>(From) {
    const From* first = static_cast<const From*>(source) + from.offset;
    if (in.dtype() == out.dtype()) {
      From* place = static_cast<From*>(target) + to.offset;
      if (contiguous(walk))
        memory().copy(place, first, static_cast<std::size_t>(walk.extents[0]) * sizeof(From));
      else if (aligned(first, place) && widen(walk, pack<From>))
        launch_copy(walk, reinterpret_cast<const float4*>(first), reinterpret_cast<float4*>(place));
      else
        launch_copy(walk, first, place);
      return;
    }
    with_type(out.dtype(), [&]<class To>(To) {
      if constexpr (!std::is_same_v<From, To>) launch_copy(walk, first, static_cast<To*>(target) + to.offset);
    });
  });
}

}  // namespace wengert::cuda::inline WENGERT_CUDA_BUILD
