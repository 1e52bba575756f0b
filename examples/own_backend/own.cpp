// A backend of one's own, loaded by programs that have never heard of it. It replaces one kernel, the lookup of rows,
// by one that also counts how often each row is asked for, and tells at the end of the program which rows are hottest.
// All other kernels are those of the reference backend.

#include <wengert/backends/reference.hpp>
#include <wengert/plugin.hpp>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <vector>

namespace wg = wengert;

namespace {

// Rows looked up so far. Backends are used by several threads, and until the process ends: made once, never destroyed.
struct Heat {
  std::mutex mutex;
  std::vector<std::int64_t> lookups;  // by row
};
Heat& heat() {
  static Heat& instance = *new Heat;
  return instance;
}

void report() {
  std::vector<std::int64_t>& lookups = heat().lookups;
  const auto hottest = std::max_element(lookups.begin(), lookups.end());
  if (hottest == lookups.end()) return;
  std::fprintf(stderr, "own: row %td was looked up most often, %lld times\n", hottest - lookups.begin(),
               static_cast<long long>(*hottest));
}

template <class T>
struct OwnKernels : wg::reference::Kernels<T> {
  static constexpr std::string_view origin = "own";  // what kernel_origins() says of the kernels below

  // out (n, d) = table (rows, d) at ids (n). The ids are in range: the operation has checked them.
  void gather_rows(const wg::Tensor& table, const wg::Tensor& ids, wg::Tensor& out) override {
    const std::int64_t rows = table.size(0), d = table.size(1);
    const T* from = wg::read<T>(table);
    const std::int64_t* id = wg::read<std::int64_t>(ids);
    T* to = wg::write<T>(out);

    const std::lock_guard lock(heat().mutex);
    std::vector<std::int64_t>& lookups = heat().lookups;
    lookups.resize(std::max(lookups.size(), static_cast<std::size_t>(rows)));
    for (std::int64_t i = 0; i < ids.numel(); ++i) {
      ++lookups[static_cast<std::size_t>(id[i])];
      if (d > 0) std::memcpy(to + i * d, from + id[i] * d, static_cast<std::size_t>(d) * sizeof(T));
    }
  }
};

wg::Backend& make_own() {
  static wg::Backend& backend = *new wg::reference::BackendWith<OwnKernels>("own");
  static const int reported = std::atexit(report);
  static_cast<void>(reported);
  return backend;
}

}  // namespace

WENGERT_PLUGIN("own", make_own)
