#pragma once
/// What the host side of the CUDA kernels needs of the machine: memory, a stream, a sort and a matrix product. It
/// exists twice: runtime_cuda.cpp, sort.cu and gemm.cpp on the CUDA runtime, cub and cuBLAS, and on the CPU, for tests.
/// No CUDA header is needed to include this.
///
/// All work of the process is queued on one stream and done in the order in which it was queued. So a tensor may go
/// from thread to thread, and memory that one thread gave back may be handed to another, without further ado:
/// docs/cuda.md.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "wengert/storage.hpp"

// Both builds of the kernels may meet in one process: their symbols differ by this namespace.
#ifdef WENGERT_CUDA_EMULATED
#define WENGERT_CUDA_BUILD emulated
#else
#define WENGERT_CUDA_BUILD device
#endif

namespace wengert::cuda::inline WENGERT_CUDA_BUILD {

/// The name that the backend is registered by: "cuda" or "cuda-emulated".
std::string_view backend_name();

/// Finds and prepares the device. Throws BackendError with the reason when there is none that can be used. Everything
/// below is called after it.
void open();

/// The device's memory. `upload` returns when its source may change, `download` when the bytes are there: it waits for
/// the stream.
Memory& memory();

/// The stream, a cudaStream_t.
void* stream();

/// Number of multiprocessors: how much there has to be in flight.
int multiprocessors();

/// Sorts `count` > 0 pairs (key, value) by key; pairs of equal keys stay in their order. Keys are in [0, 2^end_bit),
/// 1 <= end_bit <= 63. All four arrays are on the device and do not overlap.
void sort_pairs(const std::int64_t* keys, const std::int64_t* values, std::int64_t count, int end_bit,
                std::int64_t* sorted_keys, std::int64_t* sorted_values);

/// out (batch, m, n) = alpha * a (batch, m, k) b (batch, k, n) + beta * out, row-major, all extents > 0. A transposed
/// operand is stored (batch, k, m) or (batch, n, k). Strides are elements from one matrix of the batch to the next, 0
/// for one that all share. With beta == 0 the old content of out is not read. Sums are formed in T (no TF32).
template <class T>
struct Gemm {
  std::int64_t batch = 1, m = 0, n = 0, k = 0;
  bool trans_a = false, trans_b = false;
  std::int64_t stride_a = 0, stride_b = 0, stride_out = 0;
  T alpha = 1, beta = 0;
  const T* a = nullptr;
  const T* b = nullptr;
  T* out = nullptr;
};
void gemm(const Gemm<float>& product);
void gemm(const Gemm<double>& product);

/// Device memory of one kernel call. It may be released while the work that uses it is still queued: whoever gets it
/// next queues behind.
template <class T>
class Scratch {
 public:
  explicit Scratch(std::int64_t count) : block_(memory().allocate(static_cast<std::size_t>(count) * sizeof(T))) {}
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { memory().release(block_); }
  T* data() const { return static_cast<T*>(block_.data); }

 private:
  Memory::Block block_;
};

}  // namespace wengert::cuda::inline WENGERT_CUDA_BUILD
