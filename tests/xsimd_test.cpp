// The choice of an architecture, and which kernels are whose.

#include <doctest/doctest.h>

#include "wengert/backends/xsimd.hpp"

namespace wg = wengert;

TEST_CASE("an architecture that is unknown, or that this machine lacks, is an error that lists those it has") {
  CHECK_THROWS_WITH_AS(wg::xsimd_backend::choose_architecture("neon"),
                       doctest::Contains("xsimd: WENGERT_ARCH is 'neon'; this machine can run "), wg::BackendError);
  CHECK_THROWS_WITH_AS(wg::xsimd_backend::choose_architecture("neon"), doctest::Contains("sse2"), wg::BackendError);
  CHECK_NOTHROW(wg::xsimd_backend::choose_architecture("sse2"));
  CHECK_NOTHROW(wg::xsimd_backend::choose_architecture(""));
}

TEST_CASE("backends say which kernels are their own") {
  const auto origin = [](const char* backend, const char* kernel) -> std::string {
    for (const auto& entry : wg::backend(backend).kernel_origins())
      if (entry.kernel == kernel) return std::string(entry.origin);
    return "none";
  };
  CHECK(origin("reference", "gather_rows") == "reference");
  CHECK(origin("reference", "embed_dropout") == "default");
  CHECK(origin("xsimd", "embed_dropout") == "xsimd");
  CHECK(origin("xsimd", "attention") == "xsimd");
  CHECK(origin("reference", "attention") == "default");
  CHECK(origin("xsimd", "normalize_rows_backward") == "xsimd");
  CHECK(origin("xsimd", "iota") == "reference");
  if (!wg::backend_available("onednn")) return;
  CHECK(origin("onednn", "matmul") == "onednn");
  CHECK(origin("onednn", "gather_rows") == "xsimd");
  CHECK(origin("onednn", "dropout") == "xsimd");
}
