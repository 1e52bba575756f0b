#pragma once
/// The kernel interface: what a backend computes. Included by backends and by operations, not by training scripts.
///
/// Arguments are checked before a kernel sees them: contiguous, allocated, on this backend, of one floating type T
/// unless the comment says otherwise; ids are int64 and in range. Outputs may be uninitialised and never overlap
/// inputs, except that an element-wise kernel may write where it reads (same shape). Empty tensors are legal. Kernels
/// never record. The pure kernels of the embedding stack are defined, bit for bit, by wengert/bits.hpp.

#include <cstdint>
#include <optional>
#include <type_traits>

#include "wengert/elementwise.hpp"
#include "wengert/gradient.hpp"
#include "wengert/random.hpp"
#include "wengert/tape.hpp"
#include "wengert/tensor.hpp"

namespace wengert {

/// Address of a tensor's values in its backend's memory, for kernels. Throws DTypeError for another T.
template <class T>
const T* read(const Tensor& tensor);
/// The same for writing: raises the version. Obtain it once a kernel.
template <class T>
T* write(Tensor& tensor);

enum class Reduce : std::uint8_t { sum, max };

/// A tensor seen as (outer, n, inner), to be reduced over n.
struct Axis {
  std::int64_t outer = 1, n = 1, inner = 1;
};

/// Element [i0, i1, ...] lies at offset + i0 * strides[0] + i1 * strides[1] + ... (in elements).
struct StridedView {
  std::int64_t offset = 0;
  std::int64_t strides[Shape::max_rank] = {};
};

/// out (batch, m, n) = alpha * a (batch, m, k) b (batch, k, n) + beta * out. A transposed operand is stored (.., k, m)
/// or
/// (.., n, k); a shared one has no batch axis. With beta == 0 the old content of out is not read.
struct Matmul {
  std::int64_t batch = 1, m = 0, n = 0, k = 0;
  bool trans_a = false, trans_b = false;
  bool share_a = false, share_b = false;
  double alpha = 1.0, beta = 0.0;
};

/// One drawing of dropout: element e is kept when 16 random bits, at the place that docs/bits.md fixes, are >=
/// threshold.
struct Dropout {
  double p = 0.0;       ///< probability to drop, in [0, 1]
  RandomState state{};  ///< where its random blocks begin
  /// True when every element is kept as it is: nothing to draw, nothing to save.
  bool identity() const { return p == 0.0; }
  /// 1 / (1 - p), the factor of kept elements; 0 for p = 1.
  double scale() const { return p < 1.0 ? 1.0 / (1.0 - p) : 0.0; }
};

/// Which rows of the position table belong to a batch (batch, length) of tokens.
struct Positions {
  Tensor ids{};  ///< int64, (length) or (batch, length); undefined: start, start + 1, ...
  std::int64_t start = 0;
};

/// Cross-entropy over rows of logits with labels (rows).
struct CrossEntropy {
  std::int64_t ignore = -100;  ///< a row with this label: loss 0, gradient exactly 0
  double smoothing = 0.0;      ///< the target: 1 - smoothing for the label, and smoothing / classes for every class
};

/// One optimiser step. Scalars are rounded to T once; docs/bits.md gives the order of operations.
struct SgdStep {
  double lr = 0.0, momentum = 0.0, dampening = 0.0, weight_decay = 0.0;
  bool nesterov = false;
  bool first = false;      ///< the momentum buffer is all zeros: dampening does not apply
  bool lazy_rows = false;  ///< a row-sparse gradient steps only its rows; otherwise absent rows step with gradient 0
};
struct AdamStep {
  double lr = 0.0, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.0;
  bool decoupled = false;  ///< AdamW: decay the parameter itself, before the step
  std::int64_t step = 1;   ///< of this parameter, from 1: the t of 1 - beta^t
  bool lazy_rows = false;
};

/// softmax(scale * q k^T + mask) v for q (batch, heads, tq, d), k and v (batch, heads, tk, d), out like q. The weights
/// of a query that sees no key are 0.
struct Attention {
  double scale = 1.0;
  bool causal = false;  ///< query i sees keys 0 .. i + tk - tq
  Tensor key_mask{};    ///< (batch, tk), added to the scores; undefined: none
  Dropout dropout{};    ///< on the weights; every row of them starts a new random block
};

/// Every kernel, by name. (This list makes a backend's account of itself; see `kernel_origins`.)
// clang-format off
#define WENGERT_KERNELS(X) \
  X(fill) X(iota) X(copy_strided) X(unary) X(binary) X(reduce) X(argmax) X(gather_rows) X(merge_rows) X(add_rows) \
  X(id_range) X(keep_mask) X(apply_mask) X(where) X(matmul) X(softmax) X(normalize_rows) X(cross_entropy) \
  X(cross_entropy_backward) X(sum_squares) X(sgd_step) X(adam_step) X(dropout) X(dropout_backward) \
  X(embed_dropout) X(embed_dropout_backward) X(linear) X(softmax_backward) X(normalize_rows_backward) \
  X(attention) X(attention_backward)
// clang-format on

/// The kernels of one backend for values of one type.
struct Kernels {
  static constexpr std::string_view origin = "default";

  Kernels() = default;
  Kernels(const Kernels&) = delete;
  Kernels& operator=(const Kernels&) = delete;
  virtual ~Kernels() = default;

  // --- Pure kernels: every backend needs them, by writing or inheriting them ---

  /// out[...] = value. Any type.
  virtual void fill(Tensor& out, double value) = 0;
  /// out (n), int64: start, start + 1, ...
  virtual void iota(Tensor& out, std::int64_t start) = 0;
  /// out[to at i] = convert(in[from at i]) for every index i of `extent`: cast, permute, slice, expand, concat. Any
  /// types.
  virtual void copy_strided(const Shape& extent, const Tensor& in, const StridedView& from, Tensor& out,
                            const StridedView& to) = 0;
  /// out = op(x, scalar); same shape.
  virtual void unary(Unary op, const Tensor& x, double scalar, Tensor& out) = 0;
  /// out = op(a, b); a and b broadcast to out's shape.
  virtual void binary(Binary op, const Tensor& a, const Tensor& b, Tensor& out) = 0;
  /// out (outer, inner) = op over n of x (outer, n, inner); sums by the fixed tree. An empty sum is 0; max needs n > 0.
  virtual void reduce(Reduce op, const Axis& axis, const Tensor& x, Tensor& out) = 0;
  /// out (outer, inner), int64: place of the first maximum along n > 0; a NaN counts as larger than any number.
  virtual void argmax(const Axis& axis, const Tensor& x, Tensor& out) = 0;
  /// out (n, d) = table (rows, d) at ids (n).
  virtual void gather_rows(const Tensor& table, const Tensor& ids, Tensor& out) = 0;
  /// See RowGrad::merge.
  virtual RowGrad merge_rows(const Tensor& ids, const Tensor& rows, std::int64_t num_rows,
                             std::optional<std::int64_t> skip) = 0;
  /// dense (num_rows, d) += rows.
  virtual void add_rows(const RowGrad& rows, Tensor& dense) = 0;
  /// Smallest and largest of the int64 ids, those equal to `skip` left out.
  virtual IdRange id_range(const Tensor& ids, std::optional<std::int64_t> skip) = 0;
  /// bits (4 ceil(count / 128)), int32: bit e % 8 of byte e / 8 is 1 when element e < count is kept; later bits are
  /// arbitrary.
  virtual void keep_mask(const Dropout& dropout, std::int64_t count, Tensor& bits) = 0;
  /// out = kept ? x * scale : +0, by selection.
  virtual void apply_mask(const Tensor& x, const Tensor& bits, double scale, Tensor& out) = 0;
  /// out = condition ? a : b, by selection; all of one shape and type. A condition holds where it is not 0.
  virtual void where(const Tensor& condition, const Tensor& a, const Tensor& b, Tensor& out) = 0;
  virtual void matmul(const Matmul& shape, const Tensor& a, const Tensor& b, Tensor& out) = 0;
  /// Over the last axis of x (rows, n); `log` gives the logarithm. Rows are shifted by their maximum.
  virtual void softmax(const Tensor& x, bool log, Tensor& out) = 0;
  /// out (rows, n) = (x - mean) * rstd * weight + bias, row by row; weight and bias (n) may be undefined: 1 and 0.
  /// stats (rows, 2) receives each row's mean of x - x[first] and rstd = 1 / sqrt(variance + eps), the variance over n.
  /// Measured from the row's first element, a constant row gives exactly the bias and a large mean costs no digits.
  virtual void normalize_rows(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps, Tensor& out,
                              Tensor& stats) = 0;
  /// losses (rows) = log sum exp(logits) - target * logits, with the target of CrossEntropy. logits (rows, classes),
  /// labels (rows) int64. norms (rows, 2) receives, for the backward, each row's maximum and log sum exp(logits -
  /// maximum): apart, because added up they lose the digits that the gradient needs where logits are large.
  virtual void cross_entropy(const CrossEntropy& options, const Tensor& logits, const Tensor& labels, Tensor& losses,
                             Tensor& norms) = 0;
  /// out (rows, classes) = (exp((logits - norms[row][0]) - norms[row][1]) - target) * grad[row]; exactly 0 in ignored
  /// rows. grad (rows).
  virtual void cross_entropy_backward(const CrossEntropy& options, const Tensor& grad, const Tensor& logits,
                                      const Tensor& labels, const Tensor& norms, Tensor& out) = 0;
  /// out (), float64: the sum of squares of x, in double, by the fixed tree.
  virtual void sum_squares(const Tensor& x, Tensor& out) = 0;
  /// Step `param` along `grad`, dense or rows. `momentum` (like param) is undefined when the step has none.
  virtual void sgd_step(const SgdStep& step, const Gradient& grad, Tensor& param, Tensor& momentum) = 0;
  /// m and v like param.
  virtual void adam_step(const AdamStep& step, const Gradient& grad, Tensor& param, Tensor& m, Tensor& v) = 0;

  // --- Composed kernels: bodies made of the above, which a backend may replace by one that fuses. What they put into
  //     `saved` is their own affair: it comes back to the backward of the same backend. ---

  /// out = dropout(x), 0 < p <= 1.
  virtual void dropout(const Tensor& x, const Dropout& dropout, Tensor& out, Saved& saved);
  virtual void dropout_backward(const Tensor& grad, const Dropout& dropout, const Saved& saved, Tensor& out);
  /// out (batch, length, d) = dropout(tokens[ids] + positions[0 .. length]); ids (batch, length), tables (rows, d).
  virtual void embed_dropout(const Tensor& tokens, const Tensor& positions, const Tensor& ids, const Positions& place,
                             const Dropout& dropout, Tensor& out, Saved& saved);
  /// Gradients of both tables; a null pointer asks for none. `skip`: the padding row of the token table.
  virtual void embed_dropout_backward(const Tensor& grad, const Tensor& ids, const Positions& place,
                                      const Dropout& dropout, const Saved& saved, std::int64_t token_rows,
                                      std::int64_t position_rows, std::optional<std::int64_t> skip, RowGrad* token_grad,
                                      RowGrad* position_grad);
  /// out (rows, n) = x (rows, k) weight (n, k)^T + bias (n); bias may be undefined.
  virtual void linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor& out);
  /// Gradient of softmax (or its logarithm) from its output y.
  virtual void softmax_backward(const Tensor& grad, const Tensor& y, bool log, Tensor& out);
  /// Gradients of normalize_rows; a null pointer asks for none. stats as the forward wrote them.
  virtual void normalize_rows_backward(const Tensor& grad, const Tensor& x, const Tensor& weight, const Tensor& stats,
                                       Tensor* grad_x, Tensor* grad_weight, Tensor* grad_bias);
  virtual void attention(const Attention& options, const Tensor& q, const Tensor& k, const Tensor& v, Tensor& out,
                         Saved& saved);
  virtual void attention_backward(const Attention& options, const Tensor& grad, const Tensor& q, const Tensor& k,
                                  const Tensor& v, const Tensor& out, const Saved& saved, Tensor& grad_q,
                                  Tensor& grad_k, Tensor& grad_v);
};

namespace detail {
template <class Class, class Member>
constexpr std::string_view origin_of(Member Class::*) {
  return Class::origin;
}
}  // namespace detail

/// The account of kernel class K: which class wrote each kernel body, by that class's `origin`. It is read off the
/// types (a pointer to an inherited member has the type of the class that declares it), so it cannot be wrong.
template <class K>
std::vector<KernelOrigin> kernel_origins() {
  return {
#define WENGERT_ORIGIN(name) {#name, detail::origin_of(&K::name)},
      WENGERT_KERNELS(WENGERT_ORIGIN)
#undef WENGERT_ORIGIN
  };
}

}  // namespace wengert
