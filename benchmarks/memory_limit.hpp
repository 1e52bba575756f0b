#pragma once
/// What the memory of this machine can do, measured here and now: the yardstick for kernels that mostly move bytes.

#include <cstdint>
#include <string>

namespace wengert::benchmarks {

/// In GB/s (10^9 bytes), from and to DRAM on huge pages. Copies and updates count both directions.
struct MemoryLimit {
  double copy = 0.0;            ///< memcpy
  double streaming_copy = 0.0;  ///< with stores that bypass the caches
  double read = 0.0;
  double update = 0.0;  ///< read, modify, write in place
  int threads = 1;
  /// The faster of the two copies.
  double best_copy() const { return copy > streaming_copy ? copy : streaming_copy; }
  /// "copy 25.7, streaming copy 37.6, read 27.9, update 50.4 GB/s, 1 thread"
  std::string text() const;
};

/// Takes about a second. Medians of several passes over buffers that no cache holds.
MemoryLimit measure_memory_limit(int threads);

/// GB/s at which random rows of `width` floats (a multiple of 16) come out of a table of `rows` rows, with the next
/// rows prefetched: reads only, each row summed up in registers.
double measure_gather_limit(std::int64_t rows, std::int64_t width, int threads);

}  // namespace wengert::benchmarks
