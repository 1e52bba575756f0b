#pragma once
// The fixed tree of docs/bits.md over any operation that joins an earlier with a later value.

#include <cstdint>

#include "launch.cuh"

namespace wengert::cuda::inline WENGERT_CUDA_BUILD {

/// Terms of a block, which are joined left to right.
constexpr std::int64_t tree_block = 32;

template <class T>
struct Sum {
  __device__ static T join(T earlier, T later) { return earlier + later; }
};
/// NaN is larger than any number; of equal values the first stays.
template <class T>
struct Max {
  __device__ static bool exceeds(T value, T best) { return value > best || (value != value && best == best); }
  __device__ static T join(T earlier, T later) { return exceeds(later, earlier) ? later : earlier; }
};

/// Joins up to 2^levels blocks that come one by one, as a binary counter carries. The sums lie in local memory, which a
/// thread touches once a block; in registers they would leave room for fewer threads.
template <class T, class Op, int levels>
class Counter {
 public:
  __device__ void add(T block) {
    const unsigned before = blocks_++;
    int level = 0;
    for (; ((before >> level) & 1u) != 0; ++level) block = Op::join(sums_[level], block);
    sums_[level] = block;
  }
  /// Of at least one block.
  __device__ T result() const {
    int level = 0;
    while (((blocks_ >> level) & 1u) == 0) ++level;
    T total = sums_[level];
    for (++level; level <= levels; ++level)
      if (((blocks_ >> level) & 1u) != 0) total = Op::join(sums_[level], total);
    return total;
  }

 private:
  T sums_[levels + 1] = {};
  unsigned blocks_ = 0;
};

/// The same for one block a lane, of which the first `blocks` count. The result is lane 0's. All lanes call it.
template <class Op, class T>
__device__ T join_lanes(T block, std::int64_t blocks) {
  WENGERT_UNROLL
  for (int apart = 1; apart < warp_size; apart *= 2) {
    const T later = __shfl_down_sync(whole_warp, block, static_cast<unsigned>(apart));
    if (lane() % (2 * apart) == 0 && lane() + apart < blocks) block = Op::join(block, later);
  }
  return block;
}

}  // namespace wengert::cuda::inline WENGERT_CUDA_BUILD
