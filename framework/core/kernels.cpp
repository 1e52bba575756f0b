// Bodies of the composed kernels, made of the pure ones: correct on every backend, replaced where a backend fuses.

#include "wengert/kernels.hpp"

#include <cmath>
#include <limits>

#include "ops/check.hpp"
#include "tensor_impl.hpp"
#include "wengert/bits.hpp"

namespace wengert {

using detail::row_major;
using detail::TensorAccess;

namespace {

// A mask of `count` bits, in whole blocks of 128.
Tensor empty_mask(std::int64_t count, const Tensor& like) {
  return empty({bits::mask_words(count)}, DType::int32, like.backend());
}

}  // namespace

void Kernels::dropout(const Tensor& x, const Dropout& dropout, Tensor& out, Saved& saved) {
  if (dropout.p == 1.0) return fill(out, 0.0);
  Tensor bits = empty_mask(x.numel(), x);
  keep_mask(dropout, x.numel(), bits);
  apply_mask(x, bits, dropout.scale(), out);
  saved.push(bits);
}

void Kernels::dropout_backward(const Tensor& grad, const Dropout& dropout, const Saved& saved, Tensor& out) {
  if (dropout.p == 1.0) return fill(out, 0.0);
  apply_mask(grad, saved[0], dropout.scale(), out);
}

void Kernels::embed_dropout(const Tensor& tokens, const Tensor& positions, const Tensor& ids, const Positions& place,
                            const Dropout& dropout, Tensor& out, Saved& saved) {
  const std::int64_t length = ids.size(-1), dim = tokens.size(1);
  gather_rows(tokens, ids, out);
  Tensor rows = empty((place.ids.defined() ? place.ids.shape() : Shape{length}) + dim, out);
  if (place.ids.defined()) {
    gather_rows(positions, place.ids, rows);
  } else {
    StridedView from = row_major(rows.shape());
    from.offset = place.start * dim;
    copy_strided(rows.shape(), positions, from, rows, row_major(rows.shape()));
  }
  binary(Binary::add, out, rows, out);
  if (!dropout.identity()) this->dropout(out, dropout, out, saved);
}

void Kernels::embed_dropout_backward(const Tensor& grad, const Tensor& ids, const Positions& place,
                                     const Dropout& dropout, const Saved& saved, std::int64_t token_rows,
                                     std::int64_t position_rows, std::optional<std::int64_t> skip, RowGrad* token_grad,
                                     RowGrad* position_grad) {
  const std::int64_t length = ids.size(-1), dim = grad.size(-1), count = ids.numel();
  const std::int64_t batch = ids.shape().product(0, ids.dim() - 1);
  Tensor rows = TensorAccess::alias(grad, {count, dim});
  if (!dropout.identity()) {
    Tensor undropped = empty(rows.shape(), rows);
    dropout_backward(rows, dropout, saved, undropped);
    rows = undropped;
  }
  if (token_grad) *token_grad = merge_rows(TensorAccess::alias(ids, {count}), rows, token_rows, skip);
  if (!position_grad) return;
  if (!place.ids.defined()) {
    position_grad->ids = empty({length}, ids);
    iota(position_grad->ids, place.start);
    position_grad->rows = empty({length, dim}, rows);
    position_grad->num_rows = position_rows;
    reduce(Reduce::sum, {1, batch, length * dim}, rows, position_grad->rows);
    return;
  }
  Tensor flat = empty({batch, length}, ids);  // (length) ids stand for every sequence of the batch
  StridedView from = row_major(flat.shape());
  if (place.ids.numel() != count) from.strides[0] = 0;
  copy_strided(flat.shape(), place.ids, from, flat, row_major(flat.shape()));
  *position_grad = merge_rows(TensorAccess::alias(flat, {count}), rows, position_rows, {});
}

void Kernels::linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor& out) {
  Matmul shape;
  shape.m = x.size(0), shape.n = weight.size(0), shape.k = x.size(1);
  shape.trans_b = true;
  matmul(shape, x, weight, out);
  if (bias.defined()) binary(Binary::add, out, bias, out);
}

// d softmax: y (g - sum(g y)); d log softmax: g - exp(y) sum(g). Sums over the last axis.
void Kernels::softmax_backward(const Tensor& grad, const Tensor& y, bool log, Tensor& out) {
  const std::int64_t n = y.size(-1);
  const Axis axis{n == 0 ? 0 : y.numel() / n, n, 1};
  Tensor total = empty(y.shape().with(-1, 1), y), product = empty(y.shape(), y);
  if (log) {
    reduce(Reduce::sum, axis, grad, total);
    unary(Unary::exp, y, 0.0, product);
    binary(Binary::mul, product, total, product);
    binary(Binary::sub, grad, product, out);
  } else {
    binary(Binary::mul, grad, y, product);
    reduce(Reduce::sum, axis, product, total);
    binary(Binary::sub, grad, total, product);
    binary(Binary::mul, product, y, out);
  }
}

// With normal = ((x - x[first]) - mean) * rstd: d x = rstd * (h - mean(h) - normal * mean(h * normal)), h = grad *
// weight; d weight and d bias are the sums over rows of grad * normal and grad.
void Kernels::normalize_rows_backward(const Tensor& grad, const Tensor& x, const Tensor& weight, const Tensor& stats,
                                      Tensor* grad_x, Tensor* grad_weight, Tensor* grad_bias) {
  const std::int64_t rows = x.size(0), n = x.size(1);
  const Shape matrix{rows, n}, column{rows, 1};
  const auto pick = [&](const Tensor& from, std::int64_t width, std::int64_t at) {  // column `at`
    Tensor out = empty(column, from);
    copy_strided(column, from, {at, {width, 1}}, out, row_major(column));
    return out;
  };
  if (grad_bias) reduce(Reduce::sum, {1, rows, n}, grad, *grad_bias);
  if (n == 0) return;
  Tensor normal = empty(matrix, x), product = empty(matrix, x);
  const Tensor rstd = pick(stats, 2, 1);
  binary(Binary::sub, x, pick(x, n, 0), normal);
  binary(Binary::sub, normal, pick(stats, 2, 0), normal);
  binary(Binary::mul, normal, rstd, normal);
  if (grad_weight) {
    binary(Binary::mul, grad, normal, product);
    reduce(Reduce::sum, {1, rows, n}, product, *grad_weight);
  }
  if (!grad_x) return;
  Tensor scaled = grad;
  if (weight.defined()) binary(Binary::mul, grad, weight, scaled = empty(matrix, x));
  Tensor mean = empty(column, x);
  const auto average = [&](const Tensor& of) {
    reduce(Reduce::sum, {rows, n, 1}, of, mean);
    unary(Unary::div_scalar, mean, static_cast<double>(n), mean);
  };
  binary(Binary::mul, scaled, normal, product);
  average(product);
  binary(Binary::mul, normal, mean, normal);
  average(scaled);
  binary(Binary::sub, scaled, mean, product);
  binary(Binary::sub, product, normal, product);
  binary(Binary::mul, product, rstd, *grad_x);
}

// --- Attention. The weights after softmax and their mask are kept: (batch * heads, tq, tk). ---

namespace {

struct AttentionShape {
  std::int64_t batch, heads, tq, tk, d;
  AttentionShape(const Tensor& q, const Tensor& k)
      : batch(q.size(0)), heads(q.size(1)), tq(q.size(2)), tk(k.size(2)), d(q.size(3)) {}
  Shape weights() const { return {batch, heads, tq, tk}; }
  // Every row of the weights has random blocks of its own, so that a tiled kernel can draw any row by itself.
  std::int64_t padded() const { return (tk + 127) / 128 * 128; }
  Matmul product(std::int64_t m, std::int64_t n, std::int64_t k) const {
    Matmul shape;
    shape.batch = batch * heads, shape.m = m, shape.n = n, shape.k = k;
    return shape;
  }
};

// (tq, tk): 0 where a query sees a key, -inf where the key is in its future. A line of both, read along diagonals.
Tensor future_mask(Kernels& kernels, const AttentionShape& shape, const Tensor& like) {
  const Shape matrix{shape.tq, shape.tk}, past{shape.tk};
  Tensor line = full({shape.tq + shape.tk - 1}, -std::numeric_limits<double>::infinity(), like);
  kernels.copy_strided(past, zeros(past, like), row_major(past), line, row_major(past));
  Tensor mask = empty(matrix, like);
  kernels.copy_strided(matrix, line, {shape.tq - 1, {-1, 1}}, mask, row_major(matrix));
  return mask;
}

// The weights of a query that sees no key are 0, where softmax gives NaN.
void clear_blind_rows(Kernels& kernels, const Tensor& scores, Tensor& weights) {
  const Shape column{scores.size(0), 1};
  Tensor largest = empty(column, scores), blind = empty(scores.shape(), scores);
  kernels.reduce(Reduce::max, {scores.size(0), scores.size(1), 1}, scores, largest);
  kernels.binary(Binary::equal, largest, full({}, -std::numeric_limits<double>::infinity(), scores), largest);
  kernels.copy_strided(scores.shape(), largest, {0, {1, 0}}, blind, row_major(scores.shape()));
  kernels.where(blind, zeros(scores.shape(), scores), weights, weights);
}

void drop_weights(Kernels& kernels, const AttentionShape& shape, const Tensor& weights, const Tensor& bits,
                  double scale, Tensor& out) {
  const Shape wide{shape.batch * shape.heads * shape.tq, shape.padded()}, narrow{wide[0], shape.tk};
  Tensor buffer = zeros(wide, weights);
  kernels.copy_strided(narrow, weights, row_major(narrow), buffer, row_major(wide));
  kernels.apply_mask(buffer, bits, scale, buffer);
  kernels.copy_strided(narrow, buffer, row_major(wide), out, row_major(narrow));
}

}  // namespace

void Kernels::attention(const Attention& options, const Tensor& q, const Tensor& k, const Tensor& v, Tensor& out,
                        Saved& saved) {
  const AttentionShape shape(q, k);
  Tensor scores = empty(shape.weights(), q);
  Matmul product = shape.product(shape.tq, shape.tk, shape.d);
  product.trans_b = true, product.alpha = options.scale;
  matmul(product, q, k, scores);
  if (options.causal && scores.numel() > 0) {
    const Tensor future = future_mask(*this, shape, q);
    binary(Binary::add, scores, future, scores);
  }
  if (options.key_mask.defined()) {
    const Tensor keys = TensorAccess::alias(options.key_mask, {shape.batch, 1, 1, shape.tk});
    binary(Binary::add, scores, keys, scores);
  }
  Tensor weights = empty(shape.weights(), q);
  const Shape rows{shape.batch * shape.heads * shape.tq, shape.tk};
  Tensor flat = TensorAccess::alias(weights, rows);
  softmax(TensorAccess::alias(scores, rows), false, flat);
  if ((options.key_mask.defined() || (options.causal && shape.tq > shape.tk)) && scores.numel() > 0)
    clear_blind_rows(*this, TensorAccess::alias(scores, rows), flat);
  saved.push(weights);
  Tensor dropped = weights;
  if (options.dropout.p == 1.0) {
    dropped = zeros(weights.shape(), weights);
  } else if (!options.dropout.identity()) {
    const std::int64_t count = shape.batch * shape.heads * shape.tq * shape.padded();
    Tensor bits = empty_mask(count, q);
    keep_mask(options.dropout, count, bits);
    dropped = empty(weights.shape(), weights);
    drop_weights(*this, shape, weights, bits, options.dropout.scale(), dropped);
    saved.push(bits);
  }
  matmul(shape.product(shape.tq, shape.d, shape.tk), dropped, v, out);
}

void Kernels::attention_backward(const Attention& options, const Tensor& grad, const Tensor& q, const Tensor& k,
                                 const Tensor& v, const Tensor& /*out*/, const Saved& saved, Tensor& grad_q,
                                 Tensor& grad_k, Tensor& grad_v) {
  const AttentionShape shape(q, k);
  const Tensor& weights = saved[0];
  Tensor dropped = weights, grad_weights = empty(weights.shape(), weights);
  Matmul product = shape.product(shape.tq, shape.tk, shape.d);
  product.trans_b = true;
  matmul(product, grad, v, grad_weights);
  if (options.dropout.p == 1.0) {
    dropped = zeros(weights.shape(), weights);
    fill(grad_weights, 0.0);
  } else if (!options.dropout.identity()) {
    dropped = empty(weights.shape(), weights);
    drop_weights(*this, shape, weights, saved[1], options.dropout.scale(), dropped);
    drop_weights(*this, shape, grad_weights, saved[1], options.dropout.scale(), grad_weights);
  }
  product = shape.product(shape.tk, shape.d, shape.tq);
  product.trans_a = true;
  matmul(product, dropped, grad, grad_v);
  Tensor grad_scores = empty(weights.shape(), weights);
  softmax_backward(grad_weights, weights, false, grad_scores);
  product.alpha = options.scale;
  matmul(product, grad_scores, q, grad_k);
  product = shape.product(shape.tq, shape.d, shape.tk);
  product.alpha = options.scale;
  matmul(product, grad_scores, k, grad_q);
}

}  // namespace wengert
