#pragma once
/// The CUDA backend's kernels and the backend itself, as both builds compile them. kernels.cu is the device's
/// translation unit, kernels.cpp the emulator's; each family of kernels lies in a .cuh of its own. The kernels of the
/// embedding stack give the bits of wengert/bits.hpp; the others give the same bits from run to run. No kernel adds by
/// atomics.

#include "runtime.hpp"
#include "wengert/kernels.hpp"

namespace wengert::cuda::inline WENGERT_CUDA_BUILD {

/// Nothing here waits for the device but `id_range` and `merge_rows`, once each: the host needs the range, and the
/// number of rows to make a tensor of.
template <class T>
struct Kernels : wengert::Kernels {
  static constexpr std::string_view origin = "cuda";

  void fill(Tensor& out, double value) override;
  void iota(Tensor& out, std::int64_t start) override;
  void copy_strided(const Shape& extent, const Tensor& in, const StridedView& from, Tensor& out,
                    const StridedView& to) override;
  void unary(Unary op, const Tensor& x, double scalar, Tensor& out) override;
  void binary(Binary op, const Tensor& a, const Tensor& b, Tensor& out) override;
  void where(const Tensor& condition, const Tensor& a, const Tensor& b, Tensor& out) override;
  void reduce(Reduce op, const Axis& axis, const Tensor& x, Tensor& out) override;
  void argmax(const Axis& axis, const Tensor& x, Tensor& out) override;
  void sum_squares(const Tensor& x, Tensor& out) override;
  void gather_rows(const Tensor& table, const Tensor& ids, Tensor& out) override;
  RowGrad merge_rows(const Tensor& ids, const Tensor& rows, std::int64_t num_rows,
                     std::optional<std::int64_t> skip) override;
  void add_rows(const RowGrad& rows, Tensor& dense) override;
  IdRange id_range(const Tensor& ids, std::optional<std::int64_t> skip) override;
  void keep_mask(const Dropout& dropout, std::int64_t count, Tensor& bits) override;
  void apply_mask(const Tensor& x, const Tensor& bits, double scale, Tensor& out) override;
  void dropout(const Tensor& x, const Dropout& dropout, Tensor& out, Saved& saved) override;
  void dropout_backward(const Tensor& grad, const Dropout& dropout, const Saved& saved, Tensor& out) override;
  void embed_dropout(const Tensor& tokens, const Tensor& positions, const Tensor& ids, const Positions& place,
                     const Dropout& dropout, Tensor& out, Saved& saved) override;
  void embed_dropout_backward(const Tensor& grad, const Tensor& ids, const Positions& place, const Dropout& dropout,
                              const Saved& saved, std::int64_t token_rows, std::int64_t position_rows,
                              std::optional<std::int64_t> skip, RowGrad* token_grad, RowGrad* position_grad) override;
  void matmul(const Matmul& shape, const Tensor& a, const Tensor& b, Tensor& out) override;
  void softmax(const Tensor& x, bool log, Tensor& out) override;
  void softmax_backward(const Tensor& grad, const Tensor& y, bool log, Tensor& out) override;
  void cross_entropy(const CrossEntropy& options, const Tensor& logits, const Tensor& labels, Tensor& losses,
                     Tensor& norms) override;
  void cross_entropy_backward(const CrossEntropy& options, const Tensor& grad, const Tensor& logits,
                              const Tensor& labels, const Tensor& norms, Tensor& out) override;
  void normalize_rows(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps, Tensor& out,
                      Tensor& stats) override;
  void normalize_rows_backward(const Tensor& grad, const Tensor& x, const Tensor& weight, const Tensor& stats,
                               Tensor* grad_x, Tensor* grad_weight, Tensor* grad_bias) override;
  void sgd_step(const SgdStep& step, const Gradient& grad, Tensor& param, Tensor& momentum) override;
  void adam_step(const AdamStep& step, const Gradient& grad, Tensor& param, Tensor& m, Tensor& v) override;
};

/// The backend. Throws BackendError with the reason when this machine has no device that it can use.
wengert::Backend& instance();

}  // namespace wengert::cuda::inline WENGERT_CUDA_BUILD
