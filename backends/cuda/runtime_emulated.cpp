// The machine of the emulated build: device memory that the host cannot reach, and plain loops for cub and cuBLAS.

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "../../framework/core/sanitizer.hpp"
#include "emulator/device_space.hpp"
#include "emulator/emulator.hpp"
#include "runtime.hpp"

namespace wengert::cuda::inline WENGERT_CUDA_BUILD {

namespace {

using emulator::device_space;

template <class T>
T* reach(const char* who, T* address) {
  return static_cast<T*>(device_space().reach(who, address));
}

class EmulatedMemory final : public Memory {
 public:
  EmulatedMemory() : Memory("cuda-emulated") {}

  bool host_visible() const override { return false; }
  void upload(void* to, const void* host, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(reach("upload", to), host, bytes);
  }
  void download(void* host, const void* from, std::size_t bytes) override {
    if (bytes == 0) return;
    ++emulator::counts.waits;
    std::memcpy(host, reach("download", from), bytes);
  }
  void copy(void* to, const void* from, std::size_t bytes) override {
    if (bytes > 0) std::memmove(reach("copy", to), reach("copy", from), bytes);
  }

 protected:
  void* system_allocate(std::size_t bytes) override { return device_space().allocate(bytes); }
  void system_release(void* data, std::size_t bytes) noexcept override {
    wengert::detail::unpoison(reach("release", data), bytes);
    device_space().release(data, bytes);
  }
  void lend(void* data, std::size_t bytes, std::size_t capacity) noexcept override {
    char* real = static_cast<char*>(reach("allocate", data));
    wengert::detail::unpoison(real, bytes);
    wengert::detail::poison(real + bytes, capacity - bytes);
    std::memset(real, 0xFF, bytes);  // NaN in both floating types, -1 in the integer ones
  }
  void take_back(void* data, std::size_t capacity) noexcept override {
    wengert::detail::poison(reach("release", data), capacity);
  }
};

template <class T>
void multiply(const Gemm<T>& s) {
  const T* a = reach("gemm", s.a);
  const T* b = reach("gemm", s.b);
  T* out = reach("gemm", s.out);
  thread_local std::vector<T> columns;  // of b: b^T, so that both operands are read in order
  columns.resize(static_cast<std::size_t>(s.k * s.n));
  thread_local std::vector<T> line;
  line.resize(static_cast<std::size_t>(s.k));
  for (std::int64_t z = 0; z < s.batch; ++z, a += s.stride_a, b += s.stride_b, out += s.stride_out) {
    for (std::int64_t j = 0; j < s.n; ++j)
      for (std::int64_t p = 0; p < s.k; ++p)
        columns[static_cast<std::size_t>(j * s.k + p)] = s.trans_b ? b[j * s.k + p] : b[p * s.n + j];
    for (std::int64_t i = 0; i < s.m; ++i) {
      for (std::int64_t p = 0; p < s.k; ++p)
        line[static_cast<std::size_t>(p)] = s.trans_a ? a[p * s.m + i] : a[i * s.k + p];
      for (std::int64_t j = 0; j < s.n; ++j) {
        const T* column = columns.data() + j * s.k;
        constexpr std::int64_t lanes = 8;  // sums side by side, which a compiler keeps in one register
        T sums[lanes] = {};
        std::int64_t p = 0;
        for (; p + lanes <= s.k; p += lanes)
          for (std::int64_t lane = 0; lane < lanes; ++lane)
            sums[lane] += line[static_cast<std::size_t>(p + lane)] * column[p + lane];
        T sum = std::accumulate(sums, sums + lanes, T(0));
        for (; p < s.k; ++p) sum += line[static_cast<std::size_t>(p)] * column[p];
        T& to = out[i * s.n + j];
        to = s.beta == T(0) ? s.alpha * sum : s.alpha * sum + s.beta * to;
      }
    }
  }
}

}  // namespace

std::string_view backend_name() { return "cuda-emulated"; }

void open() {}

Memory& memory() {
  static Memory& instance = *new EmulatedMemory;  // never destroyed: static tensors may outlive it otherwise
  return instance;
}

void* stream() { return nullptr; }  // a launch is done when it returns

int multiprocessors() { return 2; }  // few, so that kernels go round their loops

void sort_pairs(const std::int64_t* keys, const std::int64_t* values, std::int64_t count, int end_bit,
                std::int64_t* sorted_keys, std::int64_t* sorted_values) {
  keys = reach("sort_pairs", keys), values = reach("sort_pairs", values);
  sorted_keys = reach("sort_pairs", sorted_keys), sorted_values = reach("sort_pairs", sorted_values);
  const std::int64_t low_bits = (std::int64_t{1} << end_bit) - 1;  // a device looks at these alone
  thread_local std::vector<std::int64_t> order;
  order.resize(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](std::int64_t i, std::int64_t j) {  // stable_sort would allocate
    return std::pair(keys[i] & low_bits, i) < std::pair(keys[j] & low_bits, j);
  });
  for (std::int64_t i = 0; i < count; ++i) {
    sorted_keys[i] = keys[order[static_cast<std::size_t>(i)]];
    sorted_values[i] = values[order[static_cast<std::size_t>(i)]];
  }
}

void gemm(const Gemm<float>& product) { multiply(product); }
void gemm(const Gemm<double>& product) { multiply(product); }

}  // namespace wengert::cuda::inline WENGERT_CUDA_BUILD
