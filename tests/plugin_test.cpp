// Backends that are loaded while the program runs. The plug-ins are in tests/plugins.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "wengert/plugin.hpp"
#include "wengert/wengert.hpp"

namespace wg = wengert;
namespace fs = std::filesystem;

namespace {

// The environment variable for the length of a scope.
class PluginPath {
 public:
  explicit PluginPath(const std::string& path) { setenv("WENGERT_PLUGIN_PATH", path.c_str(), 1); }
  PluginPath(const PluginPath&) = delete;
  PluginPath& operator=(const PluginPath&) = delete;
  ~PluginPath() { unsetenv("WENGERT_PLUGIN_PATH"); }
};

bool registered(std::string_view name) {
  const std::vector<std::string> names = wg::backend_names();
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string reason(const std::string& name) {
  std::string text;
  CHECK_FALSE(wg::backend_available(name, &text));
  return text;
}

std::string says(const char* variable) {
  const char* value = std::getenv(variable);
  return value ? value : "";
}

}  // namespace

TEST_CASE("a plug-in is opened when somebody asks for its name, and not before; its kernel runs") {
  const PluginPath path(std::string("/nowhere:") + WENGERT_TEST_PLUGINS);
  const std::string before = wg::current_backend().name() == "loaded" ? "opened" : "";
  if (before.empty() && !registered("loaded")) CHECK(says("WENGERT_TEST_PLUGIN").empty());

  std::vector<wg::Backend*> found(4);
  std::vector<std::thread> threads(found.size());  // all of them ask at once, one of them opens it
  for (std::size_t i = 0; i < found.size(); ++i)
    threads[i] = std::thread([&found, i] { found[i] = &wg::backend("loaded"); });
  for (std::thread& thread : threads) thread.join();
  for (const wg::Backend* backend : found) CHECK(backend == &wg::backend("loaded"));
  CHECK(says("WENGERT_TEST_PLUGIN") != "");
  CHECK(registered("loaded"));

  const wg::BackendScope use("loaded");
  setenv("WENGERT_TEST_PLUGIN", "asked", 1);
  const wg::Tensor rows = wg::embedding(wg::tensor<float>({{1, 2}, {3, 4}}), wg::tensor<std::int64_t>({1, 0, 1}));
  CHECK(rows.to_vector<float>() == std::vector<float>{3, 4, 1, 2, 3, 4});
  CHECK(says("WENGERT_TEST_PLUGIN") == "looked up");
  for (const wg::KernelOrigin& kernel : wg::current_backend().kernel_origins())
    CHECK((kernel.origin == "loaded") == (kernel.kernel == "gather_rows"));
}

TEST_CASE("BK-08 a name without a plug-in lists the backends and the folders; the default is unchanged") {
  wg::Backend& before = wg::current_backend();
  const PluginPath path("/nowhere::/neither");
  CHECK_THROWS_WITH_AS(wg::set_backend("abacus"),
                       doctest::Contains("backend 'abacus' is unknown; available: xsimd, reference"), wg::BackendError);
  CHECK(reason("abacus").find("and no libwengert_abacus.so in /nowhere, /neither, ") != std::string::npos);
  CHECK(reason("abacus").ends_with(" (WENGERT_PLUGIN_PATH names other folders)"));
  CHECK(reason("../abacus").find("and '../abacus' cannot be the name of a plug-in") != std::string::npos);
  CHECK(reason("").find("cannot be the name of a plug-in") != std::string::npos);
  CHECK(&wg::current_backend() == &before);

  const std::vector<std::string> folders = wg::plugin_path();
  const fs::path program = fs::read_symlink("/proc/self/exe").parent_path();
  for (const fs::path& folder : {fs::path("/nowhere"), fs::path("/neither"), program / "wengert/plugins",
                                 program.parent_path() / "lib/wengert/plugins"})
    CHECK(std::count(folders.begin(), folders.end(), folder.string()) == 1);
}

TEST_CASE("BK-06 a plug-in that does not fit is an error that says what was required and what was found") {
  const PluginPath path(WENGERT_TEST_PLUGINS);
  const auto refused = [](const std::string& name, const std::string& why) {
    const std::string text = reason(name);
    CAPTURE(text);
    CHECK(text.find("backend '" + name + "': cannot use ") == 0);
    CHECK(text.find("libwengert_" + name + ".so: " + why) != std::string::npos);
    CHECK_FALSE(registered(name));
  };
  refused("old", "it was built for Wengert 0.0.9, plug-in interface 2, libstdc++");
  CHECK(reason("old").find("; this program has Wengert " WENGERT_VERSION ", plug-in interface 2, ") !=
        std::string::npos);
  CHECK(says("WENGERT_TEST_OLD_PLUGIN").empty());  // none of its code ran

  refused("misnamed", "it holds the backend 'other'");
  refused("copy", "it brings a second copy of Wengert");
  refused("entryless", "it has no entry point wengert_plugin_2");
  refused("incomplete", "");
  CHECK(reason("incomplete").find("not_in_this_program") != std::string::npos);
  CHECK(reason("incomplete").find("the program does not export this part of Wengert") != std::string::npos);

  const fs::path empty = fs::path(WENGERT_TEST_PLUGINS) / "libwengert_empty.so";
  std::ofstream(empty) << "no library";
  refused("empty", "it is no plug-in of Wengert: WENGERT_PLUGIN is missing");
  fs::resize_file(empty, 0);
  refused("empty", "it is no plug-in of Wengert: WENGERT_PLUGIN is missing");
  // What the loader of the system says stands as it is, without our advice.
  const std::string mark = WENGERT_PLUGIN_MARK;
  std::ofstream(empty) << mark << WENGERT_PLUGIN_BUILD << '\0';
  refused("empty", "");
  CHECK(reason("empty").find("libwengert_empty.so: file too short") != std::string::npos);
  CHECK(reason("empty").find("does not export") == std::string::npos);
  fs::remove(empty);
}

TEST_CASE("a plug-in whose backend cannot run here is known, and says why every time") {
  const PluginPath path(WENGERT_TEST_PLUGINS);
  for (int time = 0; time < 2; ++time) CHECK(reason("refused") == "refused: no quantum computer");
  CHECK(registered("refused"));
  CHECK_THROWS_WITH_AS(wg::set_backend("refused"), "refused: no quantum computer", wg::BackendError);
  CHECK(wg::sum(wg::tensor<float>({1, 2})).item() == 3.0);
}
