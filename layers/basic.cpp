// Embedding, Dropout, Linear, LayerNorm.

#include <fmt/format.h>

#include <cmath>

#include "check.hpp"
#include "wengert/kernels.hpp"
#include "wengert/layers/dropout.hpp"
#include "wengert/layers/embedding.hpp"
#include "wengert/layers/layer_norm.hpp"
#include "wengert/layers/linear.hpp"
#include "wengert/ops.hpp"
#include "wengert/random.hpp"

namespace wengert::layers {

namespace {

void check_padding(std::optional<std::int64_t> padding_idx, std::int64_t rows) {
  if (padding_idx && (*padding_idx < 0 || *padding_idx >= rows))
    throw IndexError(fmt::format("Embedding: padding_idx {} is outside [0, {})", *padding_idx, rows));
}

// Row `row` of a table becomes zeros.
void zero_row(Tensor& table, std::int64_t row) {
  const std::int64_t width = table.size(1);
  StridedView from, to;
  from.strides[0] = to.strides[0] = 1;
  to.offset = row * width;
  table.kernels().copy_strided({width}, zeros({width}, table), from, table, to);
}

}  // namespace

Embedding::Embedding(const Options& options) : padding_idx_(options.padding_idx) {
  const std::int64_t rows = require_size("Embedding", "num_embeddings", options.num_embeddings);
  const std::int64_t width = require_size("Embedding", "embedding_dim", options.embedding_dim);
  check_padding(padding_idx_, rows);
  if (!(options.init_std >= 0.0))
    throw ValueError(fmt::format("Embedding: init_std is {}; it must not be negative", options.init_std));
  weight = empty({rows, width}, options.dtype);
  normal_(weight, 0.0, options.init_std);
  if (padding_idx_) zero_row(weight, *padding_idx_);
  register_parameter("weight", weight);
}

Embedding::Embedding(const Tensor& table, const Pretrained& options) : padding_idx_(options.padding_idx) {
  if (table.dim() != 2)
    throw ShapeError(fmt::format("Embedding: a table must have shape (rows, d), got {}", table.shape().str()));
  if (!is_floating(table.dtype()))
    throw DTypeError(fmt::format("Embedding: a table must be float32 or float64, not {}", name_of(table.dtype())));
  check_padding(padding_idx_, table.size(0));
  weight = table.detach();
  register_parameter("weight", weight, !options.freeze);
}

Embedding Embedding::from_pretrained(const Tensor& table, const Pretrained& options) {
  return Embedding(table, options);
}

Tensor Embedding::forward(const Tensor& ids) const { return embedding(weight, ids, {.padding_idx = padding_idx_}); }

void Dropout::set_p(double p) {
  if (!(p >= 0.0 && p <= 1.0)) throw ValueError(fmt::format("Dropout: p is {}; it must be in [0, 1]", p));
  p_ = p;
}

Tensor Dropout::forward(const Tensor& x) const { return dropout(x, p_, is_training()); }

Linear::Linear(const Options& options) {
  const std::int64_t in = require_size("Linear", "in_features", options.in_features);
  const std::int64_t out = require_size("Linear", "out_features", options.out_features);
  const double bound = in > 0 ? 1.0 / std::sqrt(static_cast<double>(in)) : 0.0;
  weight = empty({out, in}, options.dtype);
  uniform_(weight, -bound, bound);
  if (options.bias) {
    bias = empty({out}, options.dtype);
    uniform_(bias, -bound, bound);
  }
  register_parameter("weight", weight);
  register_parameter("bias", bias);
}

Tensor Linear::forward(const Tensor& x) const { return linear(x, weight, bias); }

LayerNorm::LayerNorm(const Options& options) : normalized_shape_(options.normalized_shape), eps_(options.eps) {
  if (normalized_shape_.rank() == 0 || normalized_shape_.numel() == 0)
    throw ValueError(fmt::format("LayerNorm: normalized_shape is {}; it must have an axis, and none of extent 0",
                                 normalized_shape_.str()));
  if (!(eps_ >= 0.0)) throw ValueError(fmt::format("LayerNorm: eps is {}; it must not be negative", eps_));
  if (options.elementwise_affine) weight = ones(normalized_shape_, options.dtype);
  if (options.elementwise_affine && options.bias) bias = zeros(normalized_shape_, options.dtype);
  register_parameter("weight", weight);
  register_parameter("bias", bias);
}

Tensor LayerNorm::forward(const Tensor& x) const { return layer_norm(x, normalized_shape_, weight, bias, eps_); }

}  // namespace wengert::layers
