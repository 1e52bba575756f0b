#pragma once
/// Counts every heap allocation of the process, `operator new` included.

#include <cstdint>

/// Calls of malloc, calloc, realloc, aligned_alloc and memalign, by any thread, while one of these is alive.
class AllocationCount {
 public:
  AllocationCount();
  AllocationCount(const AllocationCount&) = delete;
  AllocationCount& operator=(const AllocationCount&) = delete;
  ~AllocationCount();
  std::int64_t value() const;
};
