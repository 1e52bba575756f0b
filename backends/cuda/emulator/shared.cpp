// Shared memory: every access is held against what the block's other threads did with the element since they last met.

#include <fmt/format.h>

#include <algorithm>

#include "machine.hpp"
#include "sanitizers.hpp"

namespace wengert::emulator {

const detail::SharedArray& Machine::shared_array(const void* key, std::size_t element_bytes, std::size_t count) {
  current();
  auto found = std::find_if(arrays_.begin(), arrays_.end(), [key](const Array& array) { return array.key == key; });
  if (found == arrays_.end()) {
    Array& made = arrays_.emplace_back();
    made.key = key;
    made.elements = std::make_unique<std::byte[]>(element_bytes * count);
    made.traces = std::make_unique<detail::Trace[]>(count);
    made.array = {made.elements.get(), made.traces.get(), count};
    found = std::prev(arrays_.end());
  }
  if (!found->in_use) {
    std::memset(found->array.elements, 0xFF, element_bytes * count);
    std::fill_n(found->array.traces, count, detail::Trace{});
    found->in_use = true;
    tsan_release(&*found);
  }
  tsan_acquire(&*found);
  return found->array;
}

namespace detail {

namespace {

// Whether one thread made both accesses, or a barrier lies between them.
bool kept_apart(const Access& before, const Access& now) {
  return before.thread == now.thread || before.barriers != now.barriers ||
         (before.thread / warp_size == now.thread / warp_size && before.warp_barriers != now.warp_barriers);
}

// The same for a write and all that have read the element since the last barrier.
bool kept_apart(const Trace& trace, const Access& now) {
  if (trace.read.thread < 0 || trace.read.barriers != now.barriers) return true;
  switch (trace.readers) {
    case Readers::one: return kept_apart(trace.read, now);
    case Readers::of_one_warp:
      return trace.read.thread / warp_size == now.thread / warp_size && trace.read.warp_barriers != now.warp_barriers;
    case Readers::many: return false;
  }
  return false;
}

std::string conflict(const char* what, std::size_t i, const Place& where, const char* earlier, const Access& before) {
  return fmt::format("missing barrier: it {} element {} of shared memory at {}, which thread {} {} at {}", what, i,
                     text(where), before.thread, earlier, text(before.where));
}

void check_index(const char* what, const SharedArray& array, std::size_t i, const Place& where) {
  if (i >= array.count)
    machine().fault(fmt::format("it {} element {} of {} in shared memory at {}", what, static_cast<std::int64_t>(i),
                                array.count, text(where)));
}

}  // namespace

const SharedArray& shared_array(const void* key, std::size_t element_bytes, std::size_t count) {
  return machine().shared_array(key, element_bytes, count);
}

void on_read(const SharedArray& array, std::size_t i, const Place& where) {
  check_index("reads", array, i, where);
  Trace& trace = array.traces[i];
  const Access now = machine().access(where);
  if (trace.write.thread < 0)
    machine().fault(fmt::format("it reads element {} of shared memory at {}, which nobody wrote", i, text(where)));
  if (!kept_apart(trace.write, now)) machine().fault(conflict("reads", i, where, "wrote", trace.write));
  const bool others = trace.read.thread >= 0 && trace.read.barriers == now.barriers && trace.read.thread != now.thread;
  if (trace.read.barriers != now.barriers) {
    trace.readers = Readers::one;
  } else if (others) {
    if (trace.read.thread / warp_size != now.thread / warp_size)
      trace.readers = Readers::many;
    else if (trace.readers == Readers::one)
      trace.readers = Readers::of_one_warp;
  }
  trace.read = now;
}

void on_write(const SharedArray& array, std::size_t i, const Place& where) {
  check_index("writes", array, i, where);
  Trace& trace = array.traces[i];
  const Access now = machine().access(where);
  if (trace.write.thread >= 0 && !kept_apart(trace.write, now))
    machine().fault(conflict("writes", i, where, "wrote", trace.write));
  if (!kept_apart(trace, now)) machine().fault(conflict("writes", i, where, "read", trace.read));
  trace.write = now;
}

}  // namespace detail

}  // namespace wengert::emulator
