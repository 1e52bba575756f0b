#pragma once
// Tells AddressSanitizer which bytes of recycled memory nobody may touch; nothing in other builds.

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#define WENGERT_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WENGERT_ASAN 1
#endif
#endif

#ifdef WENGERT_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace wengert::detail {

inline void poison([[maybe_unused]] const void* memory, [[maybe_unused]] std::size_t bytes) {
#ifdef WENGERT_ASAN
  __asan_poison_memory_region(memory, bytes);
#endif
}
inline void unpoison([[maybe_unused]] const void* memory, [[maybe_unused]] std::size_t bytes) {
#ifdef WENGERT_ASAN
  __asan_unpoison_memory_region(memory, bytes);
#endif
}

}  // namespace wengert::detail
