#pragma once
/// A CUDA device made of loops and fibers, for tests: kernel sources compile against this header by an ordinary
/// compiler and run on the CPU, one thread of the device after the other. What a device would let pass, or answer with
/// garbage, is a KernelFault that names the kernel, the place and the threads:
///
/// - a barrier, shuffle or ballot that not all of its threads reach, or that they reach at different places;
/// - in shared memory (WENGERT_SHARED): an index out of range, a read before the first write, and two accesses, one of
///   them a write, that no barrier keeps apart;
/// - a pointer argument that is not device memory.
///
/// Device memory (device_space.hpp) lies between pages that trap, is full of NaN when handed out, and cannot be reached
/// by host code. Launches run their blocks and threads alternately in ascending and in descending order, so that
/// results which depend on the order differ; `Options` fixes it. Races in device memory between threads are
/// ThreadSanitizer's to find, in a build with it and with `separate_threads`.

#include <atomic>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "device_space.hpp"
#include "wengert/error.hpp"

namespace wengert::emulator {

/// A place in the source: that of the call, as a default argument. (clang++ 14 has no std::source_location.)
struct Place {
  const char* file = "";
  int line = 0;
  static constexpr Place current(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

/// What the emulator found wrong in a kernel. The launch that threw it did part of its work; the next one is
/// unaffected.
struct KernelFault : Error {
  using Error::Error;
};

enum class Order : std::uint8_t { alternating, ascending, descending };

/// How this thread's launches run until the end of the scope.
struct Options {
  Order order = Order::alternating;  ///< of blocks, and of the threads of a block
  /// Every thread of the device is one to ThreadSanitizer, too, ordered by barriers and __syncwarp alone. It can tell
  /// some 8000 apart: keep to a few blocks.
  bool separate_threads = false;
};
class OptionsScope {
 public:
  explicit OptionsScope(const Options& options);
  OptionsScope(const OptionsScope&) = delete;
  OptionsScope& operator=(const OptionsScope&) = delete;
  ~OptionsScope();

 private:
  Options previous_;
};

/// What the process has asked of the device so far.
struct Counts {
  std::atomic<std::int64_t> launches{0};
  std::atomic<std::int64_t> waits{0};  ///< of the host for the device: downloads
};
inline Counts counts;

// --- Launches ---

namespace detail {

/// Runs call(closure) for every thread of the grid.
void run(const char* kernel, std::int64_t blocks, int threads, void (*call)(const void*), const void* closure);

// Pointer arguments are addresses of the device; its threads see what lies behind them.
template <class A>
A on_device(const char* kernel, A argument) {
  if constexpr (std::is_pointer_v<A>)
    return static_cast<A>(const_cast<void*>(device_space().reach(kernel, argument)));
  else
    return argument;
}

}  // namespace detail

/// kernel(args...) for every thread of `blocks` blocks of `threads` threads; done on return. Throws BackendError for a
/// grid that a device would refuse, and KernelFault.
template <class... Params>
void run(const char* name, std::int64_t blocks, int threads, void (*kernel)(Params...),
         std::type_identity_t<Params>... args) {
  const auto call = [kernel, ... args = detail::on_device(name, args)] { kernel(args...); };
  detail::run(
      name, blocks, threads, [](const void* closure) { (*static_cast<decltype(&call)>(closure))(); }, &call);
}

// --- Shared memory ---

namespace detail {

/// Who touched an element last, and when: counted in barriers of the block and of the warp.
struct Access {
  int thread = -1;  ///< -1: nobody
  unsigned barriers = 0, warp_barriers = 0;
  Place where{};
};
enum class Readers : std::uint8_t { one, of_one_warp, many };
struct Trace {
  Access write{}, read{};
  Readers readers = Readers::one;
};
struct SharedArray {
  void* elements;
  Trace* traces;
  std::size_t count;
};

/// The running block's array with this key; full of NaN when the first thread comes to its declaration.
const SharedArray& shared_array(const void* key, std::size_t element_bytes, std::size_t count);
void on_read(const SharedArray& array, std::size_t i, const Place& where);
void on_write(const SharedArray& array, std::size_t i, const Place& where);

}  // namespace detail

/// An array in shared memory, as WENGERT_SHARED declares it. Every access is checked.
template <class T>
class Shared {
 public:
  Shared(const void* key, std::size_t count) : array_(detail::shared_array(key, sizeof(T), count)) {}

  /// An index that knows where in the source it stands.
  struct Index {
    std::size_t value;
    Place where;
    template <std::integral I>
    Index(I i, const Place& at = Place::current()) : value(static_cast<std::size_t>(i)), where(at) {}  // NOLINT
  };
  /// An element: reads where its value is asked for, writes where it is assigned to.
  class Element {
   public:
    Element(const detail::SharedArray& array, const Index& index) : array_(array), index_(index) {}
    operator T() const {  // NOLINT(google-explicit-constructor)
      detail::on_read(array_, index_.value, index_.where);
      return at();
    }
    const Element& operator=(const T& value) const {  // NOLINT(misc-unconventional-assign-operator)
      detail::on_write(array_, index_.value, index_.where);
      at() = value;
      return *this;
    }
    const Element& operator=(const Element& other) const { return *this = static_cast<T>(other); }  // NOLINT

   private:
    T& at() const { return static_cast<T*>(array_.elements)[index_.value]; }
    const detail::SharedArray& array_;
    const Index& index_;
  };
  Element operator[](const Index& index) const { return {array_, index}; }

 private:
  const detail::SharedArray& array_;
};

namespace detail {
std::uint64_t shuffle(unsigned mask, std::uint64_t value, int source, const Place& where);
int current_lane();

template <class T>
T shuffle_value(unsigned mask, T value, int source, const Place& where) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(std::uint64_t));
  std::uint64_t word = 0;
  std::memcpy(&word, &value, sizeof value);
  word = shuffle(mask, word, source, where);
  std::memcpy(&value, &word, sizeof value);
  return value;
}
}  // namespace detail

}  // namespace wengert::emulator

// --- What CUDA's header declares, as far as kernels use it: global names, as there ---

// NOLINTBEGIN(bugprone-reserved-identifier)
#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)
// A declaration has a key of its own in every instantiation of a template, as it has an array of its own on a device.
#define WENGERT_SHARED(type, name, count) \
  static constexpr char name##_key = 0;   \
  const ::wengert::emulator::Shared<type> name(&name##_key, count)

struct WengertCoordinate {
  unsigned x = 0;
};
inline constinit thread_local WengertCoordinate threadIdx, blockIdx, blockDim, gridDim;

/// 16 bytes that are read or written at once.
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) double2 {
  double x, y;
};

// A load of what the kernel does not write, a store of what is not read again soon.
template <class T>
T __ldg(const T* address) {
  return *address;
}
template <class T>
void __stcs(T* address, T value) {
  *address = value;
}

inline int __popc(unsigned bits) { return std::popcount(bits); }

void __syncthreads(const wengert::emulator::Place& where = wengert::emulator::Place::current());
void __syncwarp(unsigned mask = 0xFFFFFFFFu,
                const wengert::emulator::Place& where = wengert::emulator::Place::current());
unsigned __ballot_sync(unsigned mask, bool predicate,
                       const wengert::emulator::Place& where = wengert::emulator::Place::current());

template <class T>
T __shfl_sync(unsigned mask, T value, int source,
              const wengert::emulator::Place& where = wengert::emulator::Place::current()) {
  return wengert::emulator::detail::shuffle_value(mask, value, source & 31, where);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits,
                  const wengert::emulator::Place& where = wengert::emulator::Place::current()) {
  return wengert::emulator::detail::shuffle_value(mask, value, wengert::emulator::detail::current_lane() ^ bits, where);
}
// A lane outside the warp gives back the caller's own value.
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta,
                   const wengert::emulator::Place& where = wengert::emulator::Place::current()) {
  const int lane = wengert::emulator::detail::current_lane(), source = lane + static_cast<int>(delta);
  return wengert::emulator::detail::shuffle_value(mask, value, source < 32 ? source : lane, where);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta,
                 const wengert::emulator::Place& where = wengert::emulator::Place::current()) {
  const int lane = wengert::emulator::detail::current_lane(), source = lane - static_cast<int>(delta);
  return wengert::emulator::detail::shuffle_value(mask, value, source >= 0 ? source : lane, where);
}
// NOLINTEND(bugprone-reserved-identifier)
