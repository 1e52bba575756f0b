// A plug-in with a Wengert of its own: memory.cpp is linked into it, and linked so that it prefers its own.
#include "wengert/plugin.hpp"

namespace {
wengert::Backend& make() { return wengert::backend("reference"); }
}  // namespace

WENGERT_PLUGIN("copy", make)
