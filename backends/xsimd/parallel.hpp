#pragma once
// Loops over ranges on several threads. How a range is cut never changes a bit of what the kernels compute.

#include <cstdint>

namespace wengert::xsimd_backend {

// Threads for work that moves `bytes` bytes (or takes as long): 1 for little work and inside somebody's parallel
// region.
int threads_for(std::int64_t bytes);

// Calls body(context, part) for part = 0 .. parts - 1, each on a thread of its own.
void run_parts(int parts, void (*body)(void* context, int part), void* context);

// The number of ranges that [0, n) is worth being cut into: at most one for each thread that `bytes` of work deserve.
// Ask once a kernel and hand the answer on: another thread may change the number of threads at any moment.
inline int parts_for(std::int64_t n, std::int64_t unit, std::int64_t bytes) {
  const std::int64_t units = (n + unit - 1) / unit;
  const int threads = threads_for(bytes);
  return units < threads ? static_cast<int>(units) : threads;
}

// Calls body(begin, end, part) for `parts` consecutive ranges that make up [0, n), each on a thread of its own. All
// ranges begin at multiples of `unit`; some may be missing.
template <class Body>
void parallel_parts(std::int64_t n, std::int64_t unit, int parts, Body body) {
  if (n <= 0) return;
  if (parts <= 1) return body(std::int64_t{0}, n, 0);
  struct Context {
    Body& body;
    std::int64_t n, unit, units;
    int parts;
  } context{body, n, unit, (n + unit - 1) / unit, parts};
  run_parts(
      parts,
      [](void* pointer, int part) {
        const Context& c = *static_cast<Context*>(pointer);
        const std::int64_t begin = c.units * part / c.parts * c.unit, end = c.units * (part + 1) / c.parts * c.unit;
        if (begin < c.n && begin < end) c.body(begin, end < c.n ? end : c.n, part);
      },
      &context);
}

// Calls body(begin, end) for ranges that make up [0, n), on as many threads as `bytes` of work deserve.
template <class Body>
void parallel(std::int64_t n, std::int64_t unit, std::int64_t bytes, Body body) {
  parallel_parts(n, unit, parts_for(n, unit, bytes),
                 [&body](std::int64_t begin, std::int64_t end, int) { body(begin, end); });
}

// Has the next fork give the worker threads up first. Done by whoever makes OpenMP threads, oneDNN included.
void survive_forks();

}  // namespace wengert::xsimd_backend
