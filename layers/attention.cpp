// MultiHeadAttention, TransformerBlock.

#include "wengert/layers/attention.hpp"

#include <cmath>
#include <limits>

#include "check.hpp"
#include "wengert/layers/transformer_block.hpp"
#include "wengert/ops.hpp"
#include "wengert/random.hpp"

namespace wengert::layers {

namespace {

constexpr const char* name = "MultiHeadAttention";

const MultiHeadAttention::Options& checked(const MultiHeadAttention::Options& options) {
  require_positive(name, "embed_dim", options.embed_dim);
  require_positive(name, "num_heads", options.num_heads);
  if (options.embed_dim % options.num_heads != 0)
    throw ValueError(fmt::format("{}: embed_dim is {}; it must be a multiple of the {} heads", name, options.embed_dim,
                                 options.num_heads));
  require_probability(name, "dropout", options.dropout);
  return options;
}

void check_input(const char* what, const Tensor& x, std::int64_t embed_dim) {
  require_defined(name, what, x);
  if (x.dim() != 3 || x.size(2) != embed_dim)
    throw ShapeError(fmt::format("{}: {} must have shape (B, T, {}), got {}", name, what, embed_dim, x.shape().str()));
}

// What the operation adds to the scores: PyTorch's padding mask says who is left out, an operation's mask who is not.
Tensor added_to_scores(const Tensor& padding, const Tensor& x) {
  if (!padding.defined() || is_floating(padding.dtype())) return padding;
  return where(padding, full({}, -std::numeric_limits<double>::infinity(), x), full({}, 0.0, x));
}

}  // namespace

MultiHeadAttention::MultiHeadAttention(const Options& options)
    : out_proj({.in_features = checked(options).embed_dim,
                .out_features = options.embed_dim,
                .bias = options.bias,
                .dtype = options.dtype}),
      num_heads_(options.num_heads),
      dropout_(options.dropout) {
  const std::int64_t width = options.embed_dim;
  in_proj_weight = empty({3 * width, width}, options.dtype);
  const double bound = std::sqrt(6.0 / static_cast<double>(4 * width));  // Glorot and Bengio 2010
  uniform_(in_proj_weight, -bound, bound);
  if (options.bias) {
    in_proj_bias = zeros({3 * width}, options.dtype);
    out_proj.bias.detach().zero_();
  }
  register_parameter("in_proj_weight", in_proj_weight);
  register_parameter("in_proj_bias", in_proj_bias);
  register_module("out_proj", out_proj);
}

Tensor MultiHeadAttention::forward(const Tensor& x, const AttentionMask& mask) const {
  check_input("x", x, in_proj_weight.size(1));
  const Tensor attended = self_attention(linear(x, in_proj_weight, in_proj_bias), num_heads_,
                                         {.causal = mask.causal,
                                          .key_mask = added_to_scores(mask.key_padding_mask, x),
                                          .dropout = dropout_,
                                          .training = is_training()});
  return out_proj(attended);
}

Tensor MultiHeadAttention::forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                   const AttentionMask& mask) const {
  const std::int64_t width = in_proj_weight.size(1);
  check_input("query", query, width);
  check_input("key", key, width);
  check_input("value", value, width);
  const auto heads = [&](const Tensor& x, std::int64_t part) {  // (B, T, E) -> (B, heads, T, d)
    const std::int64_t from = part * width, to = from + width;
    const Tensor bias = in_proj_bias ? slice(in_proj_bias, 0, from, to) : in_proj_bias;
    const Tensor projected = linear(x, slice(in_proj_weight, 0, from, to), bias);
    return permute(reshape(projected, Shape{x.size(0), x.size(1), num_heads_, width / num_heads_}), {0, 2, 1, 3});
  };
  const Tensor attended = scaled_dot_product_attention(heads(query, 0), heads(key, 1), heads(value, 2),
                                                       {.causal = mask.causal,
                                                        .key_mask = added_to_scores(mask.key_padding_mask, query),
                                                        .dropout = dropout_,
                                                        .training = is_training()});
  return out_proj(reshape(permute(attended, {0, 2, 1, 3}), query.shape()));
}

Tensor activate(Activation activation, const Tensor& x) {
  switch (activation) {
    case Activation::relu: return relu(x);
    case Activation::gelu: return gelu(x);
    case Activation::gelu_tanh: return gelu(x, Approximate::tanh);
  }
  throw ValueError("activate: unknown activation");
}

TransformerBlock::TransformerBlock(const Options& options)
    : self_attn({.embed_dim = require_positive("TransformerBlock", "embed_dim", options.embed_dim),
                 .num_heads = require_positive("TransformerBlock", "num_heads", options.num_heads),
                 .dropout = require_probability("TransformerBlock", "dropout", options.dropout),
                 .bias = options.bias,
                 .dtype = options.dtype}),
      linear1({.in_features = options.embed_dim,
               .out_features = require_positive("TransformerBlock", "feedforward_dim", options.feedforward_dim),
               .bias = options.bias,
               .dtype = options.dtype}),
      linear2({.in_features = options.feedforward_dim,
               .out_features = options.embed_dim,
               .bias = options.bias,
               .dtype = options.dtype}),
      norm1({.normalized_shape = {options.embed_dim},
             .eps = options.layer_norm_eps,
             .bias = options.bias,
             .dtype = options.dtype}),
      norm2({.normalized_shape = {options.embed_dim},
             .eps = options.layer_norm_eps,
             .bias = options.bias,
             .dtype = options.dtype}),
      dropout_(options.dropout),
      activation_(options.activation),
      norm_first_(options.norm_first) {
  register_module("self_attn", self_attn);
  register_module("linear1", linear1);
  register_module("linear2", linear2);
  register_module("norm1", norm1);
  register_module("norm2", norm2);
}

Tensor TransformerBlock::drop(const Tensor& x) const { return dropout(x, dropout_, is_training()); }

Tensor TransformerBlock::feed_forward(const Tensor& x) const {
  return drop(linear2(drop(activate(activation_, linear1(x)))));
}

Tensor TransformerBlock::forward(const Tensor& x, const AttentionMask& mask) const {
  if (norm_first_) {
    const Tensor y = x + drop(self_attn(norm1(x), mask));
    return y + feed_forward(norm2(y));
  }
  const Tensor y = norm1(x + drop(self_attn(x, mask)));
  return norm2(y + feed_forward(y));
}

}  // namespace wengert::layers
