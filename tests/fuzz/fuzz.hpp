#pragma once
/// What the fuzzers share: a file of given bytes, and a backend that has memory and nothing else.

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "wengert/backend.hpp"
#include "wengert/error.hpp"
#include "wengert/kernels.hpp"

namespace wengert::fuzz {

/// A file in memory, under a name in /proc.
class MemoryFile {
 public:
  MemoryFile(const std::uint8_t* data, std::size_t size) : file_(memfd_create("fuzz", MFD_CLOEXEC)) {
    if (file_ < 0 || ::write(file_, data, size) != static_cast<ssize_t>(size)) std::abort();
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { ::close(file_); }
  std::string path() const { return "/proc/self/fd/" + std::to_string(file_); }

 private:
  int file_;
};

class MemoryBackend final : public Backend {
 public:
  std::string_view name() const override { return "memory"; }
  Memory& memory() const override { return host_memory(); }
  Kernels& kernels(DType /*dtype*/) override { throw BackendError("no kernels"); }
  std::vector<KernelOrigin> kernel_origins() const override { return {}; }
};

inline Backend& backend() {
  static MemoryBackend instance;
  return instance;
}

/// A fuzzer finds what aborts.
inline void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "fuzz: %s\n", what);
  std::abort();
}

}  // namespace wengert::fuzz
