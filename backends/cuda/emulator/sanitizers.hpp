#pragma once
// What AddressSanitizer and ThreadSanitizer are told about fibers; nothing in other builds. The files that include this
// are compiled without ThreadSanitizer themselves: the emulator's books are no part of what is examined.

#include <cstddef>

#include "../../../framework/core/sanitizer.hpp"

#ifdef WENGERT_ASAN
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef WENGERT_EMULATOR_TSAN  // set by CMake, as the compiler does not define its own in these files
#include <sanitizer/tsan_interface.h>
#endif

namespace wengert::emulator {

inline void asan_start_switch([[maybe_unused]] void** fake_stack, [[maybe_unused]] const void* bottom,
                              [[maybe_unused]] std::size_t size) {
#ifdef WENGERT_ASAN
  __sanitizer_start_switch_fiber(fake_stack, bottom, size);
#endif
}
inline void asan_finish_switch([[maybe_unused]] void* fake_stack, [[maybe_unused]] const void** bottom,
                               [[maybe_unused]] std::size_t* size) {
#ifdef WENGERT_ASAN
  __sanitizer_finish_switch_fiber(fake_stack, bottom, size);
#endif
}
// The frames of an abandoned stack are no more.
inline void asan_forget([[maybe_unused]] void* stack, [[maybe_unused]] std::size_t size) {
  wengert::detail::unpoison(stack, size);
}

inline void* tsan_create_fiber() {
#ifdef WENGERT_EMULATOR_TSAN
  return __tsan_create_fiber(0);
#else
  return nullptr;
#endif
}
inline void tsan_destroy_fiber([[maybe_unused]] void* fiber) {
#ifdef WENGERT_EMULATOR_TSAN
  __tsan_destroy_fiber(fiber);
#endif
}
inline void* tsan_current_fiber() {
#ifdef WENGERT_EMULATOR_TSAN
  return __tsan_get_current_fiber();
#else
  return nullptr;
#endif
}
inline void tsan_switch_to_fiber([[maybe_unused]] void* fiber, [[maybe_unused]] bool ordered) {
#ifdef WENGERT_EMULATOR_TSAN
  __tsan_switch_to_fiber(fiber, ordered ? 0 : __tsan_switch_to_fiber_no_sync);
#endif
}
// What one side did before its release is known to the other after its acquire.
inline void tsan_release([[maybe_unused]] void* token) {
#ifdef WENGERT_EMULATOR_TSAN
  __tsan_release(token);
#endif
}
inline void tsan_acquire([[maybe_unused]] void* token) {
#ifdef WENGERT_EMULATOR_TSAN
  __tsan_acquire(token);
#endif
}

}  // namespace wengert::emulator
