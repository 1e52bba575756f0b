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

/// Joins up to 2^levels blocks that come one by one, as a binary counter carries. Its indices are constants once loops
/// are written out, so that the sums stay in registers.
template <class T, class Op, int levels>
class Counter {
 public:
  __device__ void add(T block) {
    const unsigned before = blocks_++;
    WENGERT_UNROLL
    for (int level = 0; level < levels; ++level) {
      if (((before >> level) & 1u) == 0) {
        sums_[level] = block;
        return;
      }
      block = Op::join(sums_[level], block);
    }
    sums_[levels] = block;
  }
  /// Of at least one block.
  __device__ T result() const {
    bool some = false;
    T total{};
    WENGERT_UNROLL
    for (int level = 0; level <= levels; ++level) {
      if (((blocks_ >> level) & 1u) == 0) continue;
      total = some ? Op::join(sums_[level], total) : sums_[level];
      some = true;
    }
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
