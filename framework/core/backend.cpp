#include "wengert/backend.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <mutex>

#include "wengert/error.hpp"
#include "wengert/plugin.hpp"

namespace wengert {

namespace {

struct Entry {
  std::string name;
  BackendFactory factory;
  std::atomic<Backend*> backend{nullptr};
  std::mutex making{};
};

struct Registry {
  std::mutex mutex;  // guards the list; entries never move
  std::deque<Entry> entries;
  std::atomic<Backend*> process_default{nullptr};
};

// Never destroyed: static tensors may outlive it otherwise.
Registry& registry() {
  static Registry& instance = *new Registry;
  return instance;
}

thread_local Backend* scoped = nullptr;

Entry* find(std::string_view name) {
  const std::lock_guard lock(registry().mutex);
  for (Entry& entry : registry().entries)
    if (entry.name == name) return &entry;
  return nullptr;
}

}  // namespace

void register_backend(std::string_view name, BackendFactory factory) {
  const std::lock_guard lock(registry().mutex);
  for (const Entry& taken : registry().entries)
    if (taken.name == name) throw BackendError(fmt::format("register_backend: the name '{}' is taken", name));
  Entry& entry = registry().entries.emplace_back();
  entry.name = name;
  entry.factory = factory;
}

std::vector<std::string> backend_names() {
  const std::lock_guard lock(registry().mutex);
  std::vector<std::string> names;
  for (const Entry& entry : registry().entries) names.push_back(entry.name);
  return names;
}

Backend& backend(std::string_view name) {
  Entry* entry = find(name);
  if (!entry) {
    const std::string absent = detail::load_plugin(name);
    entry = find(name);
    if (!entry)
      throw BackendError(
          fmt::format("backend '{}' is unknown; available: {}; {}", name, fmt::join(backend_names(), ", "), absent));
  }
  if (Backend* made = entry->backend) return *made;
  const std::lock_guard lock(entry->making);
  if (!entry->backend) entry->backend = &entry->factory();
  return *entry->backend;
}

bool backend_available(std::string_view name, std::string* reason) {
  try {
    backend(name);
    return true;
  } catch (const BackendError& error) {
    if (reason) *reason = error.what();
    return false;
  }
}

Backend& current_backend() {
  if (scoped) return *scoped;
  if (Backend* chosen = registry().process_default) return *chosen;
  const char* named = std::getenv("WENGERT_BACKEND");
  Backend* fallback = nullptr;
  if (named && *named) {
    try {
      fallback = &backend(named);
    } catch (const BackendError& error) {
      throw BackendError(fmt::format("WENGERT_BACKEND: {}", error.what()));
    }
  } else {
    const std::vector<std::string> names = backend_names();
    if (names.empty()) throw BackendError("no backend is linked into this program; link wengert::wengert");
    fallback = &backend(names.front());
  }
  Backend* expected = nullptr;  // a set_backend of another thread meanwhile wins
  registry().process_default.compare_exchange_strong(expected, fallback);
  return expected ? *expected : *fallback;
}

void set_backend(std::string_view name) { registry().process_default = &backend(name); }

BackendScope::BackendScope(std::string_view name) : BackendScope(backend(name)) {}
BackendScope::BackendScope(Backend& backend) : previous_(std::exchange(scoped, &backend)) {}
BackendScope::~BackendScope() { scoped = previous_; }

// --- Threads ---

namespace {

// CPUs that this process may use: its affinity mask, less what a cgroup (a container's CPU limit) leaves of it.
int usable_cpus() {
  int cpus = 1;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) cpus = std::max(1, CPU_COUNT(&set));
  if (std::FILE* file = std::fopen("/sys/fs/cgroup/cpu.max", "r")) {
    long long quota = 0, period = 0;  // microseconds; "max 100000" means no limit and reads no number
    if (std::fscanf(file, "%lld %lld", &quota, &period) == 2 && quota > 0 && period > 0)
      cpus = std::clamp(static_cast<int>((quota + period - 1) / period), 1, cpus);
    std::fclose(file);
  }
  return cpus;
}

std::atomic<int> threads{0};

}  // namespace

void set_num_threads(int count) {
  if (count < 1) throw ValueError(fmt::format("set_num_threads: {} is not a number of threads", count));
  threads = count;
}

int num_threads() {
  if (threads == 0) {
    int unset = 0;
    threads.compare_exchange_strong(unset, usable_cpus());
  }
  return threads;
}

}  // namespace wengert
