// The registry of built-in backends: the only file that knows which ones this build has.

#include "wengert/backend.hpp"
#include "wengert/backends/reference.hpp"
#include "wengert/backends/xsimd.hpp"
#if WENGERT_HAVE_ONEDNN
#include "wengert/backends/onednn.hpp"
#endif

namespace {

// Before the static objects of all other files, so that these may already hold tensors, and the built-in names come
// first.
[[gnu::constructor(101)]] void register_backends() {
  if (!wengert::backend_names().empty()) return;  // a plug-in has brought this file a second time
  wengert::register_backend("xsimd", wengert::xsimd_backend::instance);  // the first is the default
  wengert::register_backend("reference", wengert::reference::instance);
#if WENGERT_HAVE_ONEDNN
  wengert::register_backend("onednn", wengert::onednn::instance);
#endif
}

}  // namespace

// What the linker is told to look for, so that a static library gives up this file although nobody calls it.
extern "C" void wengert_builtin_backends() {}
