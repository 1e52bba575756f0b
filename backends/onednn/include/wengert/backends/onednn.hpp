#pragma once
/// The oneDNN backend: the xsimd kernels, with oneDNN's where it has them and they keep the promises: addition (one
/// float32 addition is exact, so the bits hold) and matrix products with bias. It has no gather, and before 3.x no
/// dropout; its softmax hides a NaN in the row.

#include "wengert/backends/xsimd.hpp"

namespace wengert::onednn {

/// Same bits from run to run at one number of threads; the embedding stack as in xsimd. Safe to use from several
/// threads.
struct Kernels : xsimd_backend::Kernels {
  static constexpr std::string_view origin = "onednn";
  using xsimd_backend::Kernels::Kernels;

  void binary(Binary op, const Tensor& a, const Tensor& b, Tensor& out) override;
  void matmul(const Matmul& shape, const Tensor& a, const Tensor& b, Tensor& out) override;
  void linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor& out) override;
};

class Backend : public xsimd_backend::Backend {
 public:
  Backend();
  std::string_view name() const override { return "onednn"; }
  wengert::Kernels& kernels(DType dtype) override;
  std::vector<KernelOrigin> kernel_origins() const override { return wengert::kernel_origins<Kernels>(); }

 private:
  Kernels float_;
};

/// The one instance, as registered under the name "onednn".
wengert::Backend& instance();

/// Primitives made so far, for tests: one for each operation, shape and number of threads.
std::size_t primitives_made();

}  // namespace wengert::onednn
