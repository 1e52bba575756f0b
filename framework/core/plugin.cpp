#include "wengert/plugin.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>

#include "wengert/error.hpp"
#include "wengert/tape.hpp"

namespace wengert {

static_assert(std::string_view(WENGERT_VERSION) == WENGERT_PROJECT_VERSION, "plugin.hpp and CMakeLists.txt disagree");

// A plug-in reaches into these by inline functions. Where a size changes, raise WENGERT_PLUGIN_INTERFACE, too.
static_assert(sizeof(void*) != 8 || (sizeof(Tensor) == 8 && sizeof(Shape) == 80 && sizeof(Storage) == 88 &&
                                     sizeof(Memory) == 32 && sizeof(Memory::Block) == 24 && sizeof(BackwardStep) == 40),
              "plug-ins of interface " WENGERT_PLUGIN_INTERFACE " have other layouts");

namespace {

namespace fs = std::filesystem;

// The library that holds this function, unless that is the program itself.
fs::path own_library() {
  Dl_info info;
  link_map* map = nullptr;
  if (!dladdr1(reinterpret_cast<void*>(&host_memory), &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP))
    return {};
  return map && map->l_name ? fs::path(map->l_name) : fs::path();  // the program's own name is empty
}

// The text behind the mark in a plug-in's file; empty if there is none. Mapped, because a file with kernels for several
// devices is large, and the text stands near its beginning.
std::string build_of(const fs::path& file) {
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) throw BackendError(std::strerror(errno));
  struct stat status {};
  fstat(descriptor, &status);
  const auto size = static_cast<std::size_t>(status.st_size);
  void* mapped = size > 0 ? mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0) : MAP_FAILED;
  close(descriptor);
  if (mapped == MAP_FAILED) return {};
  const std::string_view bytes(static_cast<const char*>(mapped), size), mark = WENGERT_PLUGIN_MARK;
  const std::size_t at = bytes.find(std::string(mark) + "Wengert ");  // made here: this file must not hold it itself
  std::string build;
  if (at != std::string_view::npos) build = bytes.substr(at + mark.size(), bytes.find('\0', at) - at - mark.size());
  munmap(mapped, size);
  return build;
}

const Plugin& open(const fs::path& file) {
  const std::string build = build_of(file);
  if (build.empty()) throw BackendError("it is no plug-in of Wengert: WENGERT_PLUGIN is missing");
  if (build != WENGERT_PLUGIN_BUILD)
    throw BackendError(fmt::format("it was built for {}; this program has {}", build, WENGERT_PLUGIN_BUILD));

  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);  // never closed: its kernels live as long as the process
  if (!library) {
    const std::string reason = dlerror();
    const bool ours =
        reason.find("undefined symbol") != std::string::npos && reason.find("7wengert") != std::string::npos;
    throw BackendError(fmt::format("{}{}", reason,
                                   ours ? "; the program does not export this part of Wengert: link it with CMake's "
                                          "wengert::wengert, or with -rdynamic"
                                        : ""));
  }
  void* entry = dlsym(library, "wengert_plugin_" WENGERT_PLUGIN_INTERFACE);
  if (!entry) throw BackendError("it has no entry point wengert_plugin_" WENGERT_PLUGIN_INTERFACE);
  const Plugin& plugin = *reinterpret_cast<const Plugin* (*)()>(entry)();
  if (&plugin.core() != &host_memory())
    throw BackendError(
        "it brings a second copy of Wengert: link it with wengert::plugin and with nothing else of Wengert");
  return plugin;
}

bool is_file_name(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

}  // namespace

std::vector<std::string> plugin_path() {
  std::vector<std::string> folders;
  const auto add = [&](const fs::path& folder) {
    std::string text = folder.lexically_normal().string();
    if (std::find(folders.begin(), folders.end(), text) == folders.end()) folders.push_back(std::move(text));
  };
  if (const char* named = secure_getenv("WENGERT_PLUGIN_PATH")) {
    std::string_view rest = named;
    while (!rest.empty()) {
      const std::string_view folder = rest.substr(0, rest.find(':'));
      rest.remove_prefix(std::min(rest.size(), folder.size() + 1));
      if (!folder.empty()) add(folder);
    }
  }
  std::error_code ignored;
  for (const fs::path& binary : {own_library(), fs::read_symlink("/proc/self/exe", ignored)}) {
    if (binary.empty()) continue;
    add(binary.parent_path() / "wengert/plugins");
    add(binary.parent_path() / ".." / WENGERT_PROJECT_LIBDIR "/wengert/plugins");
  }
  return folders;
}

std::string detail::load_plugin(std::string_view name) {
  const std::string file = fmt::format("libwengert_{}.so", name);
  if (!is_file_name(name)) return fmt::format("and '{}' cannot be the name of a plug-in", name);

  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  for (const std::string& taken : backend_names())
    if (taken == name) return {};  // another thread was faster
  const std::vector<std::string> folders = plugin_path();
  for (const std::string& folder : folders) {
    const fs::path path = fs::path(folder) / file;
    std::error_code ignored;
    if (!fs::is_regular_file(path, ignored)) continue;
    try {
      const Plugin& plugin = open(path);
      if (plugin.name != name) throw BackendError(fmt::format("it holds the backend '{}'", plugin.name));
      register_backend(name, plugin.factory);
    } catch (const BackendError& error) {
      throw BackendError(fmt::format("backend '{}': cannot use {}: {}", name, path.string(), error.what()));
    }
    return {};
  }
  return fmt::format("and no {} in {} (WENGERT_PLUGIN_PATH names other folders)", file, fmt::join(folders, ", "));
}

}  // namespace wengert
