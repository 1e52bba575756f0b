#pragma once
/// The reference backend: clear kernels on the host for float32 and float64, the ones that all others are compared
/// with, and the base class of a backend of your own. It always uses one thread. A whole plug-in:
///
///     template <class T>
///     struct LoudKernels : wengert::reference::Kernels<T> {
///       static constexpr std::string_view origin = "loud";
///       void add_rows(const wengert::RowGrad& rows, wengert::Tensor& dense) override {
///         std::puts("add_rows");
///         wengert::reference::Kernels<T>::add_rows(rows, dense);
///       }
///     };
///     wengert::Backend& make_loud() {
///       static wengert::reference::BackendWith<LoudKernels> backend("loud");
///       return backend;
///     }
///     // wengert::register_backend("loud", make_loud);

#include <string_view>
#include <vector>

#include "wengert/kernels.hpp"

namespace wengert::reference {

/// Every pure kernel. The kernels of the embedding stack give the bits of wengert/bits.hpp; the others give the same
/// bits from run to run. Tensors must lie in memory that the host can see.
template <class T>
struct Kernels : wengert::Kernels {
  static constexpr std::string_view origin = "reference";

  void fill(Tensor& out, double value) override;
  void iota(Tensor& out, std::int64_t start) override;
  void copy_strided(const Shape& extent, const Tensor& in, const StridedView& from, Tensor& out,
                    const StridedView& to) override;
  void unary(Unary op, const Tensor& x, double scalar, Tensor& out) override;
  void binary(Binary op, const Tensor& a, const Tensor& b, Tensor& out) override;
  void reduce(Reduce op, const Axis& axis, const Tensor& x, Tensor& out) override;
  void argmax(const Axis& axis, const Tensor& x, Tensor& out) override;
  void gather_rows(const Tensor& table, const Tensor& ids, Tensor& out) override;
  RowGrad merge_rows(const Tensor& ids, const Tensor& rows, std::int64_t num_rows,
                     std::optional<std::int64_t> skip) override;
  void add_rows(const RowGrad& rows, Tensor& dense) override;
  IdRange id_range(const Tensor& ids, std::optional<std::int64_t> skip) override;
  void keep_mask(const Dropout& dropout, std::int64_t count, Tensor& bits) override;
  void apply_mask(const Tensor& x, const Tensor& bits, double scale, Tensor& out) override;
  void where(const Tensor& condition, const Tensor& a, const Tensor& b, Tensor& out) override;
  void matmul(const Matmul& shape, const Tensor& a, const Tensor& b, Tensor& out) override;
  void softmax(const Tensor& x, bool log, Tensor& out) override;
  void normalize_rows(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps, Tensor& out,
                      Tensor& stats) override;
  void cross_entropy(const CrossEntropy& options, const Tensor& logits, const Tensor& labels, Tensor& losses,
                     Tensor& norms) override;
  void cross_entropy_backward(const CrossEntropy& options, const Tensor& grad, const Tensor& logits,
                              const Tensor& labels, const Tensor& norms, Tensor& out) override;
  void sum_squares(const Tensor& x, Tensor& out) override;
  void sgd_step(const SgdStep& step, const Gradient& grad, Tensor& param, Tensor& momentum) override;
  void adam_step(const AdamStep& step, const Gradient& grad, Tensor& param, Tensor& m, Tensor& v) override;
};

extern template struct Kernels<float>;
extern template struct Kernels<double>;

/// Host memory and the kernels above. Derive from it (or use BackendWith) to keep what you do not replace.
class Backend : public wengert::Backend {
 public:
  std::string_view name() const override { return "reference"; }
  Memory& memory() const override { return host_memory(); }
  wengert::Kernels& kernels(DType dtype) override;
  std::vector<KernelOrigin> kernel_origins() const override;
};

/// A backend on host memory with the kernels K<float> and K<double>, where K derives from `Kernels`. Name your own
/// kernels with `static constexpr std::string_view origin` in K.
template <template <class> class K>
class BackendWith : public Backend {
 public:
  /// `name` must outlive the backend: a literal.
  explicit BackendWith(std::string_view name) : name_(name) {}
  std::string_view name() const override { return name_; }
  wengert::Kernels& kernels(DType dtype) override {
    if (dtype == DType::float64) return double_;
    return float_;
  }
  std::vector<KernelOrigin> kernel_origins() const override { return wengert::kernel_origins<K<float>>(); }

 private:
  std::string_view name_;
  K<float> float_;
  K<double> double_;
};

/// The one instance, as registered under the name "reference".
wengert::Backend& instance();

}  // namespace wengert::reference
