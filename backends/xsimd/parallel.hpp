#pragma once
// Loops over ranges on several threads. How a range is cut never changes a bit of what the kernels compute.

#include <cstdint>

namespace wengert::xsimd_backend {

// Threads for work that moves `bytes` bytes (or takes as long): 1 for little work and inside somebody's parallel region.
int threads_for(std::int64_t bytes);

// Calls body(context, part) for part = 0 .. parts - 1, each on a thread of its own.
void run_parts(int parts, void (*body)(void* context, int part), void* context);

// Calls body(begin, end) for consecutive ranges that make up [0, n), on as many threads as `bytes` of work deserve. All
// ranges begin at multiples of `unit`.
template <class Body>
void parallel(std::int64_t n, std::int64_t unit, std::int64_t bytes, Body body) {
  if (n <= 0) return;
  const std::int64_t units = (n + unit - 1) / unit;
  const int wanted = threads_for(bytes);
  const int parts = units < wanted ? static_cast<int>(units) : wanted;
  if (parts <= 1) return body(std::int64_t{0}, n);
  struct Context {
    Body& body;
    std::int64_t n, unit, units;
    int parts;
  } context{body, n, unit, units, parts};
  run_parts(parts, [](void* pointer, int part) {
    const Context& c = *static_cast<Context*>(pointer);
    const std::int64_t begin = c.units * part / c.parts * c.unit, end = c.units * (part + 1) / c.parts * c.unit;
    if (begin < c.n) c.body(begin, end < c.n ? end : c.n);
  }, &context);
}

}  // namespace wengert::xsimd_backend
