#pragma once
// The one layer by which a kernel source works under two compilers. nvcc compiles it for the device. g++ and clang++
// compile it for the CPU, where WENGERT_CUDA_EMULATED is defined and emulator/emulator.hpp provides what CUDA's own
// header does: __global__, threadIdx, __syncthreads, __ballot_sync and so on, with checks. Kernel sources are plain
// CUDA but for shared memory, which is declared by WENGERT_SHARED. Grids and blocks have one dimension, x.

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "runtime.hpp"

#ifdef WENGERT_CUDA_EMULATED
#include "emulator/emulator.hpp"
#else
#include <cuda_runtime.h>

#include "check.hpp"
// An array in the memory that the threads of a block share.
#define WENGERT_SHARED(type, name, count) __shared__ type name[count]
#endif

// The loop that follows is written out. Ordinary compilers do not know this pragma.
#ifdef __CUDA_ARCH__
#define WENGERT_UNROLL _Pragma("unroll")
#else
#define WENGERT_UNROLL
#endif

namespace wengert::cuda::inline WENGERT_CUDA_BUILD {

constexpr int warp_size = 32;
constexpr unsigned whole_warp = 0xFFFFFFFFu;

/// Threads of every block. The emulator, which pays for idle ones, has two warps.
#ifdef WENGERT_CUDA_EMULATED
constexpr int block_threads = 64;
#else
constexpr int block_threads = 256;
#endif
constexpr int block_warps = block_threads / warp_size;

/// One launch: the kernel's name for messages, and the number of blocks. No blocks: nothing is launched.
struct Launch {
  const char* name;
  std::int64_t blocks;
};

/// Queues kernel(args...) on the stream. Throws BackendError that names the kernel when it is refused.
template <class... Params>
void launch(const Launch& at, void (*kernel)(Params...), std::type_identity_t<Params>... args) {
  if (at.blocks <= 0) return;
#ifdef WENGERT_CUDA_EMULATED
  emulator::run(at.name, at.blocks, block_threads, kernel, args...);
#else
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(at.blocks));
  config.blockDim = dim3(block_threads);
  config.stream = static_cast<cudaStream_t>(stream());
  check(cudaLaunchKernelEx(&config, kernel, args...), "kernel ", at.name);
#endif
}

/// Blocks for `items` units of work, `per_block` of them for a block: at most as many as fill the device, whose threads
/// go on to the next unit when they have done one.
inline std::int64_t blocks_for(std::int64_t items, std::int64_t per_block) {
  constexpr std::int64_t blocks_per_multiprocessor = 8;
  const std::int64_t wanted = items / per_block + (items % per_block != 0);
  return std::min(wanted, blocks_per_multiprocessor * multiprocessors());
}
/// Blocks where each unit of work is a thread's, or a warp's.
inline std::int64_t blocks_of_threads(std::int64_t items) { return blocks_for(items, block_threads); }
inline std::int64_t blocks_of_warps(std::int64_t items) { return blocks_for(items, block_warps); }

// --- Where a thread stands; for loops over grids: for (i = first_thread(); i < n; i += grid_threads()) ---

__device__ inline std::int64_t first_thread() {
  return static_cast<std::int64_t>(blockIdx.x) * static_cast<std::int64_t>(blockDim.x) + threadIdx.x;
}
__device__ inline std::int64_t grid_threads() {
  return static_cast<std::int64_t>(gridDim.x) * static_cast<std::int64_t>(blockDim.x);
}
/// The same for warps; blocks consist of whole warps.
__device__ inline std::int64_t first_warp() { return first_thread() / warp_size; }
__device__ inline std::int64_t grid_warps() { return grid_threads() / warp_size; }
__device__ inline int lane() { return static_cast<int>(threadIdx.x % warp_size); }

}  // namespace wengert::cuda::inline WENGERT_CUDA_BUILD
