// A plug-in whose backend cannot run on this machine, and says why.
#include "wengert/error.hpp"
#include "wengert/plugin.hpp"

namespace {
wengert::Backend& make() { throw wengert::BackendError("refused: no quantum computer"); }
}  // namespace

WENGERT_PLUGIN("refused", make)
