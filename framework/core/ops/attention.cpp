#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "check.hpp"

namespace wengert {

using namespace detail;

namespace {

// What is added to the scores of each key; undefined: nothing.
Tensor added_to_scores(const char* op, const Tensor& mask, const Tensor& q, std::int64_t batch, std::int64_t keys) {
  if (!mask.defined()) return {};
  check_same_backend(op, q, mask);
  if (is_floating(mask.dtype()) && mask.dtype() != q.dtype())
    throw DTypeError(
        fmt::format("{}: key_mask must be int32, int64 or {}, got {}", op, name_of(q.dtype()), name_of(mask.dtype())));
  if (!(mask.shape() == Shape{batch, keys}))
    throw ShapeError(fmt::format("{}: key_mask must have shape [{}, {}] (batch, keys), got {}", op, batch, keys,
                                 mask.shape().str()));
  if (is_floating(mask.dtype())) return mask.detach();
  Tensor added = empty(mask.shape(), q);
  added.kernels().where(mask.to(q.dtype()), zeros(mask.shape(), q),
                        full(mask.shape(), -std::numeric_limits<double>::infinity(), q), added);
  return added;
}

// The kernel's settings, its random numbers drawn: the last thing that could fail is done. q (batch, heads, tq, d).
Attention settings(const char* op, const AttentionOptions& options, const Tensor& like, const Shape& q,
                   std::int64_t keys) {
  check_probability(op, options.dropout);
  Attention attention;
  attention.scale = options.scale ? *options.scale : 1.0 / std::sqrt(static_cast<double>(q[3]));
  attention.causal = options.causal;
  attention.key_mask = added_to_scores(op, options.key_mask, like, q[0], keys);
  const std::int64_t row = (keys + 127) / 128 * 128;  // a row of the weights with its random blocks
  attention.dropout = draw_dropout(options.dropout, options.training, q[0] * q[1] * q[2] * row);
  return attention;
}

// q, k, v, the output and the mask, then what the kernel kept.
Saved with_operands(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out, const Attention& attention,
                    const Saved& kept) {
  Saved saved{q, k, v, out, attention.key_mask};
  for (std::size_t i = 0; i < kept.size(); ++i) saved.push(kept[i]);
  return saved;
}

struct AttentionGradients {
  Tensor q, k, v;
};
AttentionGradients backward(Attention attention, const Tensor& grad, const Saved& saved) {
  const Tensor &q = saved[0], &k = saved[1], &v = saved[2];
  attention.key_mask = saved[4];
  Saved kept;
  for (std::size_t i = 5; i < saved.size(); ++i) kept.push(saved[i]);
  AttentionGradients to{empty(q.shape(), q), empty(k.shape(), k), empty(v.shape(), v)};
  grad.kernels().attention_backward(attention, grad, q, k, v, saved[3], kept, to.q, to.k, to.v);
  return to;
}

// A closure for the tape must hold no tensor: the mask is among the saved.
Attention without_mask(Attention attention) {
  attention.key_mask = {};
  return attention;
}

}  // namespace

Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const AttentionOptions& options) {
  const char* op = "scaled_dot_product_attention";
  check_operands(op, {&q, &k, &v});
  check_rank(op, "q", q, 4, "(batch, heads, tq, d)");
  check_rank(op, "k", k, 4, "(batch, heads, tk, d)");
  if (!(k.shape() == v.shape()) || !(k.shape().with(2, q.size(2)) == q.shape()))
    throw ShapeError(
        fmt::format("{}: q {}, k {} and v {} do not fit: k and v must be equal, and differ from q in axis "
                    "2 alone",
                    op, q.shape().str(), k.shape().str(), v.shape().str()));
  const bool recorded = needs_record(op, {q, k, v});
  const Attention attention = settings(op, options, q, q.shape(), k.size(2));
  Tensor out = empty(q.shape(), q);
  Saved kept;
  out.kernels().attention(attention, q, k, v, out, kept);
  if (!recorded) return out;
  return record(op, out, {q, k, v}, with_operands(q, k, v, out, attention, kept),
                [attention = without_mask(attention)](BackwardStep& step) {
                  const AttentionGradients to = backward(attention, step.grad(), step.saved());
                  step.give(0, to.q);
                  step.give(1, to.k);
                  step.give(2, to.v);
                });
}

namespace {

// Where head h of part p (queries, keys, values) lies in (batch, T, parts E), walked as (batch, heads, T, d).
StridedView part_of(const Shape& heads, std::int64_t parts, std::int64_t part) {
  const std::int64_t length = heads[2], d = heads[3], width = heads[1] * d;
  return {part * width, {length * parts * width, d, parts * width, 1}};
}

}  // namespace

Tensor self_attention(const Tensor& qkv, std::int64_t num_heads, const AttentionOptions& options) {
  const char* op = "self_attention";
  check_operand(op, qkv);
  check_rank(op, "qkv", qkv, 3, "(batch, T, 3 E)");
  if (num_heads < 1) throw ValueError(fmt::format("{}: num_heads is {}; it must be positive", op, num_heads));
  if (qkv.size(2) % (3 * num_heads) != 0)
    throw ShapeError(fmt::format("{}: the last axis of qkv {} must be a multiple of 3 * {} heads", op,
                                 qkv.shape().str(), num_heads));
  const Shape heads{qkv.size(0), num_heads, qkv.size(1), qkv.size(2) / (3 * num_heads)};
  const bool recorded = needs_record(op, {qkv});
  const Attention attention = settings(op, options, qkv, heads, heads[2]);
  Kernels& kernels = qkv.kernels();
  Tensor parts[3];
  for (std::int64_t p = 0; p < 3; ++p) {
    parts[p] = empty(heads, qkv);
    kernels.copy_strided(heads, qkv, part_of(heads, 3, p), parts[p], row_major(heads));
  }
  Tensor attended = empty(heads, qkv), out = empty({heads[0], heads[2], qkv.size(2) / 3}, qkv);
  Saved kept;
  kernels.attention(attention, parts[0], parts[1], parts[2], attended, kept);
  kernels.copy_strided(heads, attended, row_major(heads), out, part_of(heads, 1, 0));
  if (!recorded) return out;
  return record(op, out, {qkv}, with_operands(parts[0], parts[1], parts[2], attended, attention, kept),
                [attention = without_mask(attention), shape = qkv.shape()](BackwardStep& step) {
                  const Shape each = step.saved()[0].shape();
                  Tensor upstream = empty(each, step.grad()), grad = empty(shape, step.grad());
                  Kernels& to = grad.kernels();
                  to.copy_strided(each, step.grad(), part_of(each, 1, 0), upstream, row_major(each));
                  const AttentionGradients of = backward(attention, upstream, step.saved());
                  std::int64_t p = 0;
                  for (const Tensor* part : {&of.q, &of.k, &of.v})
                    to.copy_strided(each, *part, row_major(each), grad, part_of(each, 3, p++));
                  step.give(0, grad);
                });
}

}  // namespace wengert
