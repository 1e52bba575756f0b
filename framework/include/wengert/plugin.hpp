#pragma once
/// Backends outside this library: shared libraries that are opened while the program runs, when somebody asks for their
/// name. A plug-in is a class derived from a backend, a factory, and one line:
///
///     wengert::Backend& make_loud() { static wengert::reference::BackendWith<LoudKernels> b("loud"); return b; }
///     WENGERT_PLUGIN("loud", make_loud)
///
/// built as `libwengert_loud.so` with CMake's target `wengert::plugin`. examples/own_backend is a whole one.

#include <cstdint>
#include <string>
#include <vector>

#include "wengert/backend.hpp"

/// Version of this library. A plug-in must have been built for exactly the version that loads it.
#define WENGERT_VERSION "0.1.0"
/// Version of all that a plug-in and the program share: the entry point (its name ends in it), `Plugin`, the layout of
/// classes, the virtual functions of kernels and memories, enumerators.
#define WENGERT_PLUGIN_INTERFACE "2"

#if defined(_LIBCPP_VERSION)
#define WENGERT_STANDARD_LIBRARY "libc++"
#elif !defined(__GLIBCXX__)
#define WENGERT_STANDARD_LIBRARY "an unknown standard library"
#elif defined(_GLIBCXX_DEBUG)
#define WENGERT_STANDARD_LIBRARY "libstdc++ with debug containers"
#elif _GLIBCXX_USE_CXX11_ABI
#define WENGERT_STANDARD_LIBRARY "libstdc++"
#else
#define WENGERT_STANDARD_LIBRARY "libstdc++ with strings from before C++11"
#endif

/// What a plug-in and the program must agree on: whatever changes the layout of a class that both see. It lies in the
/// file as text, so that it can be read before any code of the file runs.
#define WENGERT_PLUGIN_BUILD \
  "Wengert " WENGERT_VERSION ", plug-in interface " WENGERT_PLUGIN_INTERFACE ", " WENGERT_STANDARD_LIBRARY
#define WENGERT_PLUGIN_MARK "wengert-plugin: "

namespace wengert {

/// What the entry point returns.
struct Plugin {
  const char* build;       ///< WENGERT_PLUGIN_MARK WENGERT_PLUGIN_BUILD, as seen when the plug-in was compiled
  const char* name;        ///< of the backend; the file is libwengert_<name>.so
  BackendFactory factory;  ///< as given to register_backend
  Memory& (*core)();       ///< the plug-in's &host_memory: another address means a second copy of Wengert
};

/// Where `backend(name)` looks for libwengert_<name>.so, in this order: the folders of the environment variable
/// WENGERT_PLUGIN_PATH (separated by colons), then `wengert/plugins` and `../lib/wengert/plugins` beside the library
/// that holds Wengert and beside the program.
std::vector<std::string> plugin_path();

namespace detail {
/// Opens the plug-in of the backend `name` and registers it. Returns nothing if it did so, or if the name is
/// registered already; otherwise, if there is no such file, where it was looked for. Throws BackendError if there is
/// one that does not fit.
std::string load_plugin(std::string_view name);
}  // namespace detail

}  // namespace wengert

/// The entry point of a plug-in: once a library, outside all namespaces. `name` is a literal, `factory` a function
/// `wengert::Backend& ()` that may throw BackendError with the reason why this machine cannot run the backend.
#define WENGERT_PLUGIN(name, factory)                                                                \
  extern "C" [[gnu::visibility("default")]] const wengert::Plugin* wengert_plugin_2() {              \
    static constexpr wengert::Plugin plugin{WENGERT_PLUGIN_MARK WENGERT_PLUGIN_BUILD, name, factory, \
                                            wengert::host_memory};                                   \
    return &plugin;                                                                                  \
  }
