// A plug-in as it should be: one kernel of its own. The environment variables tell the test what happened in here.
#include <cstdlib>
#include <cstring>

#include "wengert/backends/reference.hpp"
#include "wengert/plugin.hpp"

namespace wg = wengert;

namespace {

const int opened = setenv("WENGERT_TEST_PLUGIN", "opened", 1);

template <class T>
struct LoadedKernels : wg::reference::Kernels<T> {
  static constexpr std::string_view origin = "loaded";
  void gather_rows(const wg::Tensor& table, const wg::Tensor& ids, wg::Tensor& out) override {
    setenv("WENGERT_TEST_PLUGIN", "looked up", 1);
    wg::reference::Kernels<T>::gather_rows(table, ids, out);
  }
};

wg::Backend& make() {
  static wg::Backend& backend = *new wg::reference::BackendWith<LoadedKernels>("loaded");
  return backend;
}

}  // namespace

WENGERT_PLUGIN("loaded", make)
