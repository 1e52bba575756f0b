#pragma once
/// Operations. Each checks its arguments, computes on the backend of its operands and, under a Tape, records its
/// derivative.
///
/// Common to all: operands must share one backend (BackendError names both) and one floating type (DTypeError); shapes
/// that do not fit throw ShapeError; nothing has changed after a throw. Axes may be negative. Results own their memory
/// unless the comment says that they share it. Gradients always have the operand's shape.

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>

#include "wengert/tensor.hpp"

namespace wengert {

// --- Embedding and dropout (ops/embedding.cpp, ops/dropout.cpp) ---

struct EmbeddingOptions {
  /// A row whose gradient is exactly zero. The lookup itself treats it like any other row.
  std::optional<std::int64_t> padding_idx{};
};
/// weight (rows, d) at ids (...), int32 or int64 -> (..., d). The gradient of a leaf table is row-sparse.
/// Throws IndexError for an id outside [0, rows): `embedding: id 50257 at [3, 17] is outside [0, 50257)`.
Tensor embedding(const Tensor& weight, const Tensor& ids, const EmbeddingOptions& options = {});

/// In training, drops each element with probability p (realised to 2^-16) and multiplies the others by 1 / (1 - p). A
/// dropped element is 0 whatever it was. Returns x itself when training is false or p is 0. Throws ValueError for p
/// outside [0, 1]. Draws 16 bits an element from `default_generator()`.
Tensor dropout(const Tensor& x, double p = 0.5, bool training = true);

struct EmbedDropoutOptions {
  double p = 0.0;
  bool training = true;
  std::optional<std::int64_t> padding_idx{};  ///< as in EmbeddingOptions, for the token table
  std::int64_t offset = 0;                    ///< position of the first token
  Tensor position_ids{};                      ///< (T) or (B, T); wins over `offset`
};
/// dropout(tokens[ids] + positions[offset .. offset + T], p) in one pass, for tokens (V, d) and positions (L, d):
/// ids (T) or (B, T) -> (..., T, d). The same bits as embedding + embedding + add + dropout. Throws IndexError when
/// offset + T > L.
Tensor embed_dropout(const Tensor& tokens, const Tensor& positions, const Tensor& ids,
                     const EmbedDropoutOptions& options = {});

// --- Arithmetic with NumPy's broadcasting (ops/arithmetic.cpp) ---

Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, const Tensor& b);
Tensor add(const Tensor& a, double s);
Tensor sub(const Tensor& a, double s);
Tensor sub(double s, const Tensor& b);
Tensor mul(const Tensor& a, double s);
Tensor div(const Tensor& a, double s);
Tensor div(double s, const Tensor& b);

inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }
inline Tensor operator+(const Tensor& a, double s) { return add(a, s); }
inline Tensor operator+(double s, const Tensor& b) { return add(b, s); }
inline Tensor operator-(const Tensor& a, double s) { return sub(a, s); }
inline Tensor operator-(double s, const Tensor& b) { return sub(s, b); }
inline Tensor operator*(const Tensor& a, double s) { return mul(a, s); }
inline Tensor operator*(double s, const Tensor& b) { return mul(b, s); }
inline Tensor operator/(const Tensor& a, double s) { return div(a, s); }
inline Tensor operator/(double s, const Tensor& b) { return div(s, b); }

// --- Element by element (ops/elementwise.cpp) ---

Tensor neg(const Tensor& x);
inline Tensor operator-(const Tensor& x) { return neg(x); }
Tensor square(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor exp(const Tensor& x);
Tensor log(const Tensor& x);
Tensor tanh(const Tensor& x);
/// max(x, 0); the derivative at 0 is 0, and 1 at NaN, as in PyTorch.
Tensor relu(const Tensor& x);

/// PyTorch's names for the two forms of gelu, which differ by up to 4.7e-4.
enum class Approximate : std::uint8_t {
  none,  ///< x Phi(x), Phi the distribution function of N(0, 1): with erf, as PyTorch's default
  tanh,  ///< x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2: "gelu_new", as GPT-2 was trained
};
/// Of -inf it is 0, and so is the derivative. Source: Hendrycks and Gimpel, "Gaussian error linear units", 2016.
Tensor gelu(const Tensor& x, Approximate approximate = Approximate::none);

/// a where the condition is not 0, b elsewhere, by selection; all three broadcast. The condition is an integer tensor
/// or of the type of a and b, and a constant: no gradient reaches it. A NaN holds.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);

// --- Reductions (ops/reduction.cpp). Without an axis: over all elements, to a scalar. ---

/// The sum of nothing is 0.
Tensor sum(const Tensor& x);
Tensor sum(const Tensor& x, std::int64_t axis, bool keepdim = false);
/// The mean of nothing is NaN.
Tensor mean(const Tensor& x);
Tensor mean(const Tensor& x, std::int64_t axis, bool keepdim = false);
/// The maxima alone, as torch.amax: equal ones share the gradient evenly. Throws ShapeError over an empty axis. NaN
/// wins, and passes no gradient on.
Tensor max(const Tensor& x);
Tensor max(const Tensor& x, std::int64_t axis, bool keepdim = false);
/// Index of the first maximum, int64, not differentiable. Without an axis: into the flattened tensor.
Tensor argmax(const Tensor& x);
Tensor argmax(const Tensor& x, std::int64_t axis, bool keepdim = false);

// --- Shape (ops/shape.cpp). Integer tensors are allowed. ---

/// Same elements, other shape; one extent may be -1. Shares the memory of x.
Tensor reshape(const Tensor& x, std::initializer_list<std::int64_t> extents);
Tensor reshape(const Tensor& x, const Shape& shape);
/// Exchanges two axes.
Tensor transpose(const Tensor& x, std::int64_t axis0, std::int64_t axis1);
/// Axis i of the result is axis axes[i] of x.
Tensor permute(const Tensor& x, std::initializer_list<std::int64_t> axes);
Tensor permute(const Tensor& x, std::span<const std::int64_t> axes);
/// Elements [start, stop) of one axis, by Python's rules: negative bounds count from the end, bounds outside are
/// clamped.
Tensor slice(const Tensor& x, std::int64_t axis, std::int64_t start, std::optional<std::int64_t> stop = {});
/// Joins along an existing axis; all other extents must be equal.
Tensor concat(std::initializer_list<Tensor> tensors, std::int64_t axis = 0);
Tensor concat(std::span<const Tensor> tensors, std::int64_t axis = 0);
/// Repeats extents of 1 (and adds axes in front) up to `shape`.
Tensor broadcast_to(const Tensor& x, const Shape& shape);

// --- Linear algebra (ops/linear.cpp) ---

/// (..., m, k) (..., k, n) -> (..., m, n) with broadcast leading axes; vectors as in NumPy's matmul.
Tensor matmul(const Tensor& a, const Tensor& b);
/// x (..., in) weight (out, in)^T + bias (out) -> (..., out). An undefined bias adds nothing.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

// --- Normalisation (ops/normalization.cpp) ---

/// (x - mean) / sqrt(variance + eps) * weight + bias over the last axes, which must be `normalized_shape`; the variance
/// is that over n. weight and bias have shape `normalized_shape`; an undefined one is 1 or 0. Exact for constant rows,
/// and as accurate far from 0 as near it. Source: Ba, Kiros and Hinton, "Layer normalization", 2016.
Tensor layer_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight = {}, const Tensor& bias = {},
                  double eps = 1e-5);
/// Over the last axis, of extent `normalized_size`.
inline Tensor layer_norm(const Tensor& x, std::int64_t normalized_size, const Tensor& weight = {},
                         const Tensor& bias = {}, double eps = 1e-5) {
  return layer_norm(x, Shape{normalized_size}, weight, bias, eps);
}

// --- Attention (ops/attention.cpp) ---

struct AttentionOptions {
  bool causal = false;  ///< query i sees keys 0 .. i + tk - tq: the last query sees all keys
  /// (batch, tk), a constant: an integer tensor, not 0 where a key takes part; or of the type of q, added to the
  /// scores.
  Tensor key_mask{};
  double dropout = 0.0;           ///< on the weights, after softmax
  std::optional<double> scale{};  ///< of q k^T; 1 / sqrt(d) unless given
  bool training = true;           ///< drop weights at all
};
/// softmax(scale q k^T + mask) v: q (batch, heads, tq, d), k and v (batch, heads, tk, d) -> (batch, heads, tq, d). A
/// query that sees no key gets 0, and passes no gradient on. Each row of the weights draws whole random blocks of its
/// own. Source: Vaswani et al., "Attention is all you need", NIPS 2017, section 3.2.
Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const AttentionOptions& options = {});
/// The same for queries, keys and values that one linear layer has made: qkv (batch, T, 3 E), in this order, each of E
/// = num_heads d columns with the heads side by side -> (batch, T, E).
Tensor self_attention(const Tensor& qkv, std::int64_t num_heads, const AttentionOptions& options = {});

// --- Losses and softmax (ops/loss.cpp) ---

Tensor softmax(const Tensor& x, std::int64_t axis = -1);
Tensor log_softmax(const Tensor& x, std::int64_t axis = -1);

enum class Reduction : std::uint8_t { none, sum, mean };

struct CrossEntropyOptions {
  std::int64_t ignore_index = -100;  ///< rows with this label: loss 0, gradient exactly 0, not counted in the mean
  Reduction reduction = Reduction::mean;
  double label_smoothing = 0.0;  ///< the target: 1 - s for the label, and s / C for every class. s in [0, 1]
};
/// Mean over the rows of log sum exp(logits) - logits[label]; logits (..., C), labels (...) int32 or int64. The classes
/// are the last axis, also where PyTorch has them second, in (N, C, T). The mean over no rows (all ignored, or none
/// there) is 0 with zero gradients. Throws IndexError for any other label outside [0, C).
Tensor cross_entropy(const Tensor& logits, const Tensor& labels, const CrossEntropyOptions& options = {});
/// cross_entropy(linear(x, weight), labels): x (..., d), weight (C, d), labels (...). Unless the reduction is none, the
/// logits are made 256 rows at a time, never stored: memory for 2 * 256 * C values however many rows there are, which
/// is what large vocabularies need. Where it is recorded, the gradients of x and weight are formed at once, for an
/// upstream gradient of 1, and scaled by the real one later: one that is meant to keep them from overflowing comes too
/// late. A head that is tied to a token table is linear_cross_entropy(x, embed.token_embed.weight, labels).
Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& labels,
                            const CrossEntropyOptions& options = {});
/// Mean of (input - target)^2; the shapes must be equal. The mean of nothing is NaN.
Tensor mse_loss(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::mean);

}  // namespace wengert
