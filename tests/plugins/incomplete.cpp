// A plug-in that wants something of Wengert that the program does not have.
#include "wengert/plugin.hpp"

namespace wengert {
Backend& not_in_this_program();
}  // namespace wengert

WENGERT_PLUGIN("incomplete", wengert::not_in_this_program)
