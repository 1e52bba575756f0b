#pragma once
// Dropout. A warp draws for 256 elements at a time: each lane calls the generator once, and eight ballots of the
// sixteen bits that its words hold are the mask.

#include "kernels.hpp"
#include "vector.cuh"
#include "wengert/bits.hpp"

namespace wengert::cuda::inline WENGERT_CUDA_BUILD {

/// Elements that a warp draws for at once, and of these each lane has eight, in packs of n: those at n (lane + 32 k).
constexpr int chunk = 256;
constexpr int chunk_share = chunk / warp_size;

/// A drawing as kernels take it.
struct Draw {
  std::uint64_t seed, stream, base;
  std::uint32_t threshold;

  explicit Draw(const Dropout& dropout)
      : seed(dropout.state.seed),
        stream(dropout.state.stream),
        base(dropout.state.counter),
        threshold(bits::keep_threshold(dropout.p)) {}
};

/// What is kept of chunk `index`: bit t of word s stands for its element 128 (t / 16) + 16 s + t % 16.
struct Kept {
  std::uint32_t word[8];

  /// All lanes call it.
  __device__ Kept(const Draw& draw, std::int64_t index) {
    const std::uint64_t counter = draw.base + 32 * static_cast<std::uint64_t>(index) + static_cast<unsigned>(lane());
    const bits::Words random = bits::philox(draw.seed, draw.stream, counter);
    WENGERT_UNROLL
    for (int s = 0; s < 8; ++s)
      word[s] = __ballot_sync(whole_warp, ((random.word[s / 2] >> (16 * (s % 2))) & 0xFFFFu) >= draw.threshold);
  }
  /// The bits of this lane's pack k, its first element's the lowest.
  template <int n>
  __device__ std::uint32_t pack_bits(int k) const {
    const int e = n * (lane() + warp_size * k), slot = e % 128 / 16;
    std::uint32_t bits = word[0];
    WENGERT_UNROLL
    for (int s = 1; s < 8; ++s) bits = slot == s ? word[s] : bits;  // registers have no addresses
    return bits >> (e / 128 * 16 + e % 16);
  }
  /// Writes the bits into a mask of `groups` whole groups of 128 bits, which are eight halves of words each.
  __device__ void write(std::uint16_t* mask, std::int64_t index, std::int64_t groups) const {
    const int half = lane(), slot = half % 8;
    if (half >= 16 || 2 * index + half / 8 >= groups) return;
    std::uint32_t bits = word[0];
    WENGERT_UNROLL
    for (int s = 1; s < 8; ++s) bits = slot == s ? word[s] : bits;
    mask[16 * index + half] = static_cast<std::uint16_t>(bits >> (half / 8 * 16));
  }
};

/// values * scale where bits say kept, otherwise +0.
template <class T, int n>
__device__ Vec<T, n> select(const Vec<T, n>& values, std::uint32_t bits, T scale) {
  Vec<T, n> out;
  WENGERT_UNROLL
  for (int i = 0; i < n; ++i) out.at[i] = ((bits >> i) & 1u) != 0 ? values.at[i] * scale : T(0);
  return out;
}

static __global__ void keep_mask_kernel(Draw draw, std::int64_t groups, std::uint16_t* mask) {
  const std::int64_t chunks = (groups + 1) / 2;
  for (std::int64_t index = first_warp(); index < chunks; index += grid_warps())
    Kept(draw, index).write(mask, index, groups);
}

template <class T, int n>
__global__ void apply_mask_kernel(const T* x, const std::uint32_t* bits, T scale, T* out, std::int64_t packs) {
  for (std::int64_t i = first_thread(); i < packs; i += grid_threads()) {
    const std::int64_t e = i * n;
    store(out + e, select(load_mutable<n>(x + e), __ldg(bits + e / 32) >> (e % 32), scale));
  }
}

template <class T, int n>
__global__ void dropout_kernel(Draw draw, const T* x, T scale, std::int64_t count, std::int64_t groups,
                               std::uint16_t* mask, T* out) {
  const std::int64_t chunks = (count + chunk - 1) / chunk;
  for (std::int64_t index = first_warp(); index < chunks; index += grid_warps()) {
    const std::int64_t first = chunk * index + n * lane();
    Vec<T, n> values[chunk_share / n] = {};
    WENGERT_UNROLL
    for (int k = 0; k < chunk_share / n; ++k)
      if (const std::int64_t e = first + n * warp_size * k; e < count) values[k] = load_mutable<n>(x + e);
    const Kept kept(draw, index);
    kept.write(mask, index, groups);
    WENGERT_UNROLL
    for (int k = 0; k < chunk_share / n; ++k)
      if (const std::int64_t e = first + n * warp_size * k; e < count)
        store(out + e, select(values[k], kept.pack_bits<n>(k), scale));
  }
}

/// A mask as kernels write it, and as they read it.
inline std::uint16_t* write_mask(Tensor& bits) {
  return reinterpret_cast<std::uint16_t*>(wengert::write<std::int32_t>(bits));
}
inline const std::uint32_t* read_mask(const Tensor& bits) {
  return reinterpret_cast<const std::uint32_t*>(wengert::read<std::int32_t>(bits));
}
inline Tensor empty_mask(std::int64_t count, const Tensor& like) {
  return empty({bits::mask_words(count)}, DType::int32, like.backend());
}
/// Groups of 128 bits in a mask.
inline std::int64_t mask_groups(std::int64_t count) { return bits::mask_words(count) / 4; }

template <class T>
void Kernels<T>::keep_mask(const Dropout& dropout, std::int64_t count, Tensor& bits) {
  const std::int64_t groups = mask_groups(count);
  launch({"keep_mask", blocks_of_warps((groups + 1) / 2)}, keep_mask_kernel, Draw(dropout), groups, write_mask(bits));
}

template <class T>
void Kernels<T>::apply_mask(const Tensor& x, const Tensor& bits, double scale, Tensor& out) {
  const T* from = read<T>(x);
  const std::uint32_t* mask = read_mask(bits);
  T* to = write<T>(out);
  with_width<T>(aligned(from, to) && x.numel() % pack<T> == 0, [&](auto n) {
    launch({"apply_mask", blocks_of_threads(x.numel() / n)}, apply_mask_kernel<T, n()>, from, mask,
           static_cast<T>(scale), to, x.numel() / n);
  });
}

template <class T>
void Kernels<T>::dropout(const Tensor& x, const Dropout& dropout, Tensor& out, Saved& saved) {
  if (dropout.p == 1.0) return fill(out, 0.0);
  const std::int64_t count = x.numel();
  Tensor bits = empty_mask(count, x);
  const T* from = read<T>(x);
  T* to = write<T>(out);
  with_width<T>(aligned(from, to) && count % pack<T> == 0, [&](auto n) {
    launch({"dropout", blocks_of_warps((count + chunk - 1) / chunk)}, dropout_kernel<T, n()>, Draw(dropout), from,
           static_cast<T>(dropout.scale()), count, mask_groups(count), write_mask(bits), to);
  });
  saved.push(bits);
}

template <class T>
void Kernels<T>::dropout_backward(const Tensor& grad, const Dropout& dropout, const Saved& saved, Tensor& out) {
  if (dropout.p == 1.0) return fill(out, 0.0);
  apply_mask(grad, saved[0], dropout.scale(), out);
}

}  // namespace wengert::cuda::inline WENGERT_CUDA_BUILD
