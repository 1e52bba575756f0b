#include "parallel.hpp"

#include <omp.h>
#include <pthread.h>

#include <exception>
#include <mutex>

#include "wengert/backend.hpp"

namespace wengert::xsimd_backend {

namespace {

// Below this a second thread costs more than it brings: waking it takes some microseconds, in which one thread moves
// this much.
constexpr std::int64_t worth_a_thread = 512 << 10;

}  // namespace

// After a fork the child has no worker threads, and the runtime does not know: its first region would wait for them for
// ever. Giving the threads up before the fork makes both processes start new ones when they need them.
void survive_forks() {
  static std::once_flag once;
  std::call_once(once, [] { pthread_atfork([] { omp_pause_resource_all(omp_pause_soft); }, nullptr, nullptr); });
}

int threads_for(std::int64_t bytes) {
  if (bytes < 2 * worth_a_thread || omp_in_parallel()) return 1;
  const std::int64_t useful = bytes / worth_a_thread;
  const int allowed = num_threads();
  return useful < allowed ? static_cast<int>(useful) : allowed;
}

void run_parts(int parts, void (*body)(void* context, int part), void* context) {
  survive_forks();
  std::exception_ptr failure;
  std::mutex mutex;
#pragma omp parallel num_threads(parts)
  {
    // Fewer threads than parts may come: each takes every so-manyth part.
    for (int part = omp_get_thread_num(); part < parts; part += omp_get_num_threads()) {
      try {
        body(context, part);
      } catch (...) {
        const std::lock_guard lock(mutex);
        failure = std::current_exception();
      }
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace wengert::xsimd_backend
