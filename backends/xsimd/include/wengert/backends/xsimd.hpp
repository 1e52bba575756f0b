#pragma once
/// The xsimd backend: float32 kernels written once over xsimd batches, compiled for baseline x86-64, AVX2 with FMA, and
/// AVX-512; the best one that this processor has is chosen when the backend is made, or the one that the environment
/// variable WENGERT_ARCH names (sse2, avx2, avx512). float64 and what is not overridden here come from reference.

#include "wengert/backends/reference.hpp"

namespace wengert::xsimd_backend {

struct Table;

/// The embedding stack gives the bits of wengert/bits.hpp on every architecture; all kernels give the same bits for any
/// number of threads. Safe to use from several threads at once, and after a fork.
struct Kernels : reference::Kernels<float> {
  static constexpr std::string_view origin = "xsimd";

  explicit Kernels(const Table& functions) : table(functions) {}

  void fill(Tensor& out, double value) override;
  void copy_strided(const Shape& extent, const Tensor& in, const StridedView& from, Tensor& out,
                    const StridedView& to) override;
  void unary(Unary op, const Tensor& x, double scalar, Tensor& out) override;
  void binary(Binary op, const Tensor& a, const Tensor& b, Tensor& out) override;
  void reduce(Reduce op, const Axis& axis, const Tensor& x, Tensor& out) override;
  void argmax(const Axis& axis, const Tensor& x, Tensor& out) override;
  IdRange id_range(const Tensor& ids, std::optional<std::int64_t> skip) override;
  void sum_squares(const Tensor& x, Tensor& out) override;
  void gather_rows(const Tensor& rows, const Tensor& ids, Tensor& out) override;
  RowGrad merge_rows(const Tensor& ids, const Tensor& rows, std::int64_t num_rows,
                     std::optional<std::int64_t> skip) override;
  void add_rows(const RowGrad& rows, Tensor& dense) override;
  void keep_mask(const wengert::Dropout& dropout, std::int64_t count, Tensor& bits) override;
  void apply_mask(const Tensor& x, const Tensor& bits, double scale, Tensor& out) override;
  void dropout(const Tensor& x, const wengert::Dropout& dropout, Tensor& out, Saved& saved) override;
  void dropout_backward(const Tensor& grad, const wengert::Dropout& dropout, const Saved& saved, Tensor& out) override;
  void embed_dropout(const Tensor& tokens, const Tensor& positions, const Tensor& ids, const Positions& place,
                     const wengert::Dropout& dropout, Tensor& out, Saved& saved) override;
  void embed_dropout_backward(const Tensor& grad, const Tensor& ids, const Positions& place,
                              const wengert::Dropout& dropout, const Saved& saved, std::int64_t token_rows,
                              std::int64_t position_rows, std::optional<std::int64_t> skip, RowGrad* token_grad,
                              RowGrad* position_grad) override;
  void sgd_step(const SgdStep& step, const Gradient& grad, Tensor& param, Tensor& momentum) override;
  void adam_step(const AdamStep& step, const Gradient& grad, Tensor& param, Tensor& m, Tensor& v) override;
  void matmul(const Matmul& shape, const Tensor& a, const Tensor& b, Tensor& out) override;
  void linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor& out) override;
  void softmax(const Tensor& x, bool log, Tensor& out) override;
  void cross_entropy(const CrossEntropy& options, const Tensor& logits, const Tensor& labels, Tensor& losses,
                     Tensor& norms) override;
  void cross_entropy_backward(const CrossEntropy& options, const Tensor& grad, const Tensor& logits,
                              const Tensor& labels, const Tensor& norms, Tensor& out) override;
  void where(const Tensor& condition, const Tensor& a, const Tensor& b, Tensor& out) override;
  void normalize_rows(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps, Tensor& out,
                      Tensor& stats) override;
  void normalize_rows_backward(const Tensor& grad, const Tensor& x, const Tensor& weight, const Tensor& stats,
                               Tensor* grad_x, Tensor* grad_weight, Tensor* grad_bias) override;
  void softmax_backward(const Tensor& grad, const Tensor& y, bool log, Tensor& out) override;
  void attention(const Attention& options, const Tensor& q, const Tensor& k, const Tensor& v, Tensor& out,
                 Saved& saved) override;
  void attention_backward(const Attention& options, const Tensor& grad, const Tensor& q, const Tensor& k,
                          const Tensor& v, const Tensor& out, const Saved& saved, Tensor& grad_q, Tensor& grad_k,
                          Tensor& grad_v) override;

  const Table& table;

 private:
  void product(Matmul shape, const float* a, const float* b, const float* bias, float* out);
};

class Backend : public reference::Backend {
 public:
  /// Throws BackendError when WENGERT_ARCH names an architecture that is unknown or that this processor does not have.
  Backend();
  std::string_view name() const override { return "xsimd"; }
  wengert::Kernels& kernels(DType dtype) override;
  std::vector<KernelOrigin> kernel_origins() const override { return wengert::kernel_origins<Kernels>(); }
  /// "sse2", "avx2" or "avx512".
  std::string_view architecture() const;

 private:
  Kernels float_;
};

/// The one instance, as registered under the name "xsimd".
wengert::Backend& instance();

/// The table of the architecture called `name`; empty: the best one. Throws BackendError.
const Table& choose_architecture(std::string_view name);

}  // namespace wengert::xsimd_backend
