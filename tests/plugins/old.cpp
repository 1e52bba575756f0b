// A plug-in of another version of Wengert, which must be refused before any of its code runs.
#include <cstdlib>

#include "wengert/plugin.hpp"
#undef WENGERT_VERSION
#define WENGERT_VERSION "0.0.9"

namespace {
const int opened = setenv("WENGERT_TEST_OLD_PLUGIN", "opened", 1);
wengert::Backend& make() { return wengert::backend("reference"); }
}  // namespace

WENGERT_PLUGIN("old", make)
