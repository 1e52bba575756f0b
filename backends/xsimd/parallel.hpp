#pragma once
// Loops over ranges on several threads. How a range is cut never changes a bit of what the kernels compute.

#include <cstdint>

namespace wengert::xsimd_backend {

// Threads for work that moves `bytes` bytes (or takes as long): 1 for little work and inside somebody's parallel region.
int threads_for(std::int64_t bytes);

// Calls body(context, part) for part = 0 .. parts - 1, each on a thread of its own.
void run_parts(int parts, void (*body)(void* context, int part), void* context);

// How many ranges `parallel` makes of the same arguments.
inline int parts_for(std::int64_t n, std::int64_t unit, std::int64_t bytes) {
  const std::int64_t units = (n + unit - 1) / unit;
  const int threads = threads_for(bytes);
  return units < threads ? static_cast<int>(units) : threads;
}

// Calls body(begin, end, part) for consecutive ranges that make up [0, n), on as many threads as `bytes` of work deserve. All
// ranges begin at multiples of `unit`.
template <class Body>
void parallel_parts(std::int64_t n, std::int64_t unit, std::int64_t bytes, Body body) {
  if (n <= 0) return;
  const int parts = parts_for(n, unit, bytes);
  if (parts <= 1) return body(std::int64_t{0}, n, 0);
  struct Context {
    Body& body;
    std::int64_t n, unit, units;
    int parts;
  } context{body, n, unit, (n + unit - 1) / unit, parts};
  run_parts(parts, [](void* pointer, int part) {
    const Context& c = *static_cast<Context*>(pointer);
    const std::int64_t begin = c.units * part / c.parts * c.unit, end = c.units * (part + 1) / c.parts * c.unit;
    if (begin < c.n) c.body(begin, end < c.n ? end : c.n, part);
  }, &context);
}

// The same for a body(begin, end) that does not care.
template <class Body>
void parallel(std::int64_t n, std::int64_t unit, std::int64_t bytes, Body body) {
  parallel_parts(n, unit, bytes, [&body](std::int64_t begin, std::int64_t end, int) { body(begin, end); });
}

}  // namespace wengert::xsimd_backend
