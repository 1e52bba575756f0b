#pragma once
// The threads that share one row: a warp, or a block for long rows.

#include "launch.cuh"
#include "tree.cuh"

namespace wengert::cuda::inline WENGERT_CUDA_BUILD {

/// Rows of more values than this are a block's affair.
constexpr std::int64_t longest_warp_row = 1024;

template <int size>
struct Team {
  static_assert(size == warp_size || size == block_threads);
  static constexpr int threads = size;

  /// The first row of this team, and the distance to its next.
  __device__ static std::int64_t first_row() { return threads == warp_size ? first_warp() : blockIdx.x; }
  __device__ static std::int64_t teams() { return threads == warp_size ? grid_warps() : gridDim.x; }
  /// This thread's number within the team.
  __device__ static int rank() { return threads == warp_size ? lane() : static_cast<int>(threadIdx.x); }

  /// The values of all threads joined, always in the same order; every thread gets the result. All of them call it.
  template <class Op, class T>
  __device__ static T join(T value) {
    for (int apart = warp_size / 2; apart > 0; apart /= 2)
      value = Op::join(value, __shfl_xor_sync(whole_warp, value, apart));
    if constexpr (threads > warp_size) {
      constexpr int warps = threads / warp_size;
      WENGERT_SHARED(T, parts, warps);
      __syncthreads();  // nobody reads the parts of the call before any more
      if (lane() == 0) parts[threadIdx.x / warp_size] = value;
      __syncthreads();
      value = parts[0];
      for (int warp = 1; warp < warps; ++warp) value = Op::join(value, static_cast<T>(parts[warp]));
    }
    return value;
  }
  /// term(0) + ... + term(n - 1).
  template <class T, class Term>
  __device__ static T sum(std::int64_t n, Term term) {
    T mine = T(0);
    for (std::int64_t c = rank(); c < n; c += threads) mine += term(c);
    return join<Sum<T>>(mine);
  }
};

/// Launches a kernel for `rows` rows of n values: run(team) returns the kernel for that team.
template <class Run, class... Args>
void launch_rows(const char* name, std::int64_t rows, std::int64_t n, Run run, Args... args) {
  if (n <= longest_warp_row)
    launch({name, blocks_of_warps(rows)}, run(Team<warp_size>()), args...);
  else
    launch({name, blocks_for(rows, 1)}, run(Team<block_threads>()), args...);
}

}  // namespace wengert::cuda::inline WENGERT_CUDA_BUILD
