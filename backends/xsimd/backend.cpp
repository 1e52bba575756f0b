// The backend, and the choice of an architecture.

#include <fmt/format.h>

#include <cstdlib>

#include "table.hpp"
#include "wengert/backends/xsimd.hpp"

extern "C" {
const wengert::xsimd_backend::Table* wengert_xsimd_sse2();
const wengert::xsimd_backend::Table* wengert_xsimd_avx2();
const wengert::xsimd_backend::Table* wengert_xsimd_avx512();
}

namespace wengert::xsimd_backend {

namespace {

struct Architecture {
  std::string_view name;
  bool (*supported)();  // by the processor, and by the operating system, which has to save the registers
  const Table* (*table)();
};

// Best first.
constexpr Architecture architectures[] = {
    {"avx512",
     [] {
       return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
              __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
              __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma");
     },
     wengert_xsimd_avx512},
    {"avx2", [] { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }, wengert_xsimd_avx2},
    {"sse2", [] { return true; }, wengert_xsimd_sse2},
};

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

const Table& choose_architecture(std::string_view name) {
  std::string supported;
  for (const Architecture& architecture : architectures) {
    if (!architecture.supported()) continue;
    if (name.empty() || name == architecture.name) return *architecture.table();
    supported += (supported.empty() ? "" : ", ") + std::string(architecture.name);
  }
  throw BackendError(fmt::format("xsimd: WENGERT_ARCH is '{}'; this machine can run {}", name, supported));
}

Backend::Backend() : float_(choose_architecture(environment("WENGERT_ARCH"))) {}

wengert::Kernels& Backend::kernels(DType dtype) {
  if (dtype == DType::float64) return reference::Backend::kernels(dtype);
  return float_;
}

std::string_view Backend::architecture() const { return float_.table.name; }

wengert::Backend& instance() {
  static Backend& backend = *new Backend;
  return backend;
}

}  // namespace wengert::xsimd_backend
