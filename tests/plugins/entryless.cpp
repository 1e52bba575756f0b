// A library with the mark of a plug-in, but without its entry point.
#include "wengert/plugin.hpp"

extern "C" const char* wengert_plugin_build() { return WENGERT_PLUGIN_MARK WENGERT_PLUGIN_BUILD; }
