#include "memory_limit.hpp"

#include <emmintrin.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>
#include <vector>

namespace wengert::benchmarks {

namespace {

constexpr std::size_t huge_page = std::size_t{2} << 20;
constexpr int passes = 9;

/// Floats on huge pages, touched.
class Buffer {
 public:
  explicit Buffer(std::size_t floats) : size_(floats) {
    const std::size_t bytes = (floats * sizeof(float) + huge_page - 1) / huge_page * huge_page;
    data_ = static_cast<float*>(std::aligned_alloc(huge_page, bytes));
    if (!data_) throw std::bad_alloc();
    madvise(data_, bytes, MADV_HUGEPAGE);
    std::fill_n(data_, floats, 1.0F);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { std::free(data_); }
  float* data() { return data_; }
  std::size_t size() const { return size_; }

 private:
  float* data_;
  std::size_t size_;
};

/// Median seconds of body(thread) on all threads at once; the threads start each pass together.
template <class Body>
double median_seconds(int threads, Body body) {
  std::vector<double> seconds;
  std::atomic<int> arrived{0}, pass{0};
  const auto wait_for = [](std::atomic<int>& value, int wanted) {
    while (value.load(std::memory_order_acquire) < wanted) std::this_thread::yield();
  };
  std::vector<std::thread> helpers;
  for (int t = 1; t < threads; ++t) {
    helpers.emplace_back([&, t] {
      for (int p = 1; p <= passes; ++p) {
        wait_for(pass, p);
        body(t);
        arrived.fetch_add(1, std::memory_order_acq_rel);
      }
    });
  }
  for (int p = 1; p <= passes; ++p) {
    const auto start = std::chrono::steady_clock::now();
    pass.store(p, std::memory_order_release);
    body(0);
    wait_for(arrived, p * (threads - 1));
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  for (std::thread& helper : helpers) helper.join();
  std::nth_element(seconds.begin(), seconds.begin() + passes / 2, seconds.end());
  return seconds[passes / 2];
}

void copy_streaming(const float* from, float* to, std::size_t floats) {
  for (std::size_t i = 0; i < floats; i += 16) {
    const __m128 a = _mm_load_ps(from + i), b = _mm_load_ps(from + i + 4), c = _mm_load_ps(from + i + 8),
                 d = _mm_load_ps(from + i + 12);
    _mm_stream_ps(to + i, a);
    _mm_stream_ps(to + i + 4, b);
    _mm_stream_ps(to + i + 8, c);
    _mm_stream_ps(to + i + 12, d);
  }
  _mm_sfence();
}

void update(float* data, std::size_t floats) {
  const __m128 factor = _mm_set1_ps(0.999F);
  for (std::size_t i = 0; i < floats; i += 4) _mm_store_ps(data + i, _mm_mul_ps(_mm_load_ps(data + i), factor));
}

/// Adds up `floats` floats, a multiple of 16.
__m128 add_up(const float* data, std::size_t floats, __m128 sum) {
  __m128 a = _mm_setzero_ps(), b = a, c = a;
  for (std::size_t i = 0; i < floats; i += 16) {
    sum = _mm_add_ps(sum, _mm_loadu_ps(data + i));
    a = _mm_add_ps(a, _mm_loadu_ps(data + i + 4));
    b = _mm_add_ps(b, _mm_loadu_ps(data + i + 8));
    c = _mm_add_ps(c, _mm_loadu_ps(data + i + 12));
  }
  return _mm_add_ps(_mm_add_ps(sum, a), _mm_add_ps(b, c));
}

/// Makes the compiler believe that the sum is used.
void keep(__m128 sum) {
  float lanes[4];
  _mm_storeu_ps(lanes, sum);
  asm volatile("" : : "r"(lanes[0]) : "memory");
}

}  // namespace

std::string MemoryLimit::text() const {
  return fmt::format("copy {:.1f}, streaming copy {:.1f}, read {:.1f}, update {:.1f} GB/s, {} thread{}", copy,
                     streaming_copy, read, MemoryLimit::update, threads, threads == 1 ? "" : "s");
}

MemoryLimit measure_memory_limit(int threads) {
  constexpr std::size_t part = std::size_t{32} << 20;
  const std::size_t floats = part * static_cast<std::size_t>(threads);
  Buffer from(floats), to(floats);
  const auto at = [](Buffer& buffer, int thread) { return buffer.data() + part * static_cast<std::size_t>(thread); };
  const auto bytes = static_cast<double>(floats * sizeof(float));
  MemoryLimit limit;
  limit.threads = threads;
  limit.copy =
      2e-9 * bytes / median_seconds(threads, [&](int t) { std::memcpy(at(to, t), at(from, t), part * sizeof(float)); });
  limit.streaming_copy =
      2e-9 * bytes / median_seconds(threads, [&](int t) { copy_streaming(at(from, t), at(to, t), part); });
  limit.read =
      1e-9 * bytes / median_seconds(threads, [&](int t) { keep(add_up(at(from, t), part, _mm_setzero_ps())); });
  limit.update = 2e-9 * bytes / median_seconds(threads, [&](int t) { update(at(to, t), part); });
  return limit;
}

double measure_gather_limit(std::int64_t rows, std::int64_t width, int threads) {
  constexpr std::size_t ahead = 12;
  const auto floats = static_cast<std::size_t>(width);
  Buffer table(static_cast<std::size_t>(rows) * floats);
  // As many rows as make 32 MB a thread; another selection each pass, so that none is in a cache already.
  const std::size_t count = (std::size_t{32} << 20) / (floats * sizeof(float));
  std::vector<std::vector<const float*>> places(static_cast<std::size_t>(threads * passes));
  std::uint64_t state = 1;
  for (auto& list : places) {
    for (std::size_t i = 0; i < count; ++i) {
      state = state * 6364136223846793005U + 1442695040888963407U;
      list.push_back(table.data() + (state >> 33) % static_cast<std::uint64_t>(rows) * floats);
    }
  }
  std::vector<std::size_t> pass(static_cast<std::size_t>(threads), 0);
  const double seconds = median_seconds(threads, [&](int t) {
    const auto thread = static_cast<std::size_t>(t);
    const auto& list = places[thread * passes + pass[thread]++];
    __m128 sum = _mm_setzero_ps();
    for (std::size_t i = 0; i < count; ++i) {
      if (i + ahead < count)
        for (std::size_t j = 0; j < floats; j += 16)
          _mm_prefetch(reinterpret_cast<const char*>(list[i + ahead] + j), _MM_HINT_T1);
      sum = add_up(list[i], floats, sum);
    }
    keep(sum);
  });
  return 1e-9 * static_cast<double>(count * floats * sizeof(float)) * threads / seconds;
}

}  // namespace wengert::benchmarks
