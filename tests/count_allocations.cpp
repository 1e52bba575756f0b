#include "count_allocations.hpp"

#include <atomic>
#include <cstddef>

namespace {

std::atomic<bool> counting{false};
std::atomic<std::int64_t> allocations{0};

void count() {
  if (counting.load(std::memory_order_relaxed)) allocations.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define WENGERT_SANITIZER_ALLOCATOR
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define WENGERT_SANITIZER_ALLOCATOR
#endif
#endif

// NOLINTBEGIN(bugprone-reserved-identifier): the names are those of the C library and the sanitizers
#ifdef WENGERT_SANITIZER_ALLOCATOR
// A sanitizer brings an allocator of its own and tells about its calls.
extern "C" int __sanitizer_install_malloc_and_free_hooks(void (*)(const volatile void*, std::size_t),
                                                         void (*)(const volatile void*));
namespace {
void on_malloc(const volatile void*, std::size_t) { count(); }
void on_free(const volatile void*) {}
const int installed = __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free);
}  // namespace
#else
// In front of glibc's, whose own names for them these are; `operator new` and free come here or stay as they are.
extern "C" {
void* __libc_malloc(std::size_t) noexcept;
void* __libc_calloc(std::size_t, std::size_t) noexcept;
void* __libc_realloc(void*, std::size_t) noexcept;
void* __libc_memalign(std::size_t, std::size_t) noexcept;

void* malloc(std::size_t bytes) noexcept {
  count();
  return __libc_malloc(bytes);
}
void* calloc(std::size_t n, std::size_t bytes) noexcept {
  count();
  return __libc_calloc(n, bytes);
}
void* realloc(void* data, std::size_t bytes) noexcept {
  count();
  return __libc_realloc(data, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept {
  count();
  return __libc_memalign(alignment, bytes);
}
void* memalign(std::size_t alignment, std::size_t bytes) noexcept {
  count();
  return __libc_memalign(alignment, bytes);
}
}
#endif
// NOLINTEND(bugprone-reserved-identifier)

AllocationCount::AllocationCount() {
#ifdef WENGERT_SANITIZER_ALLOCATOR
  static_cast<void>(installed);
#endif
  allocations = 0;
  counting = true;
}
AllocationCount::~AllocationCount() { counting = false; }
std::int64_t AllocationCount::value() const { return allocations; }
