// A plug-in in the file of another.
#include "wengert/plugin.hpp"

namespace {
wengert::Backend& make() { return wengert::backend("reference"); }
}  // namespace

WENGERT_PLUGIN("other", make)
