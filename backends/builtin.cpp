// The registry of built-in backends: the only file that knows which ones this build has.

#include "wengert/backend.hpp"
#include "wengert/backends/reference.hpp"

namespace {

const bool registered = [] {
  wengert::register_backend("reference", wengert::reference::instance);
  return true;
}();

}  // namespace

// What the linker is told to look for, so that a static library gives up this file although nobody calls it.
extern "C" bool wengert_builtin_backends() { return registered; }
