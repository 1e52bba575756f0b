#include "wengert/layers/transformer_embedding.hpp"

#include <fmt/format.h>

#include <cmath>

#include "check.hpp"
#include "wengert/ops.hpp"
#include "wengert/random.hpp"

namespace wengert::layers {

namespace {

constexpr const char* name = "TransformerEmbedding";

std::int64_t most_tokens(const TransformerEmbedding::Options& options) {
  const bool needed = options.positions != PositionTable::none || options.max_seq_len != required;
  return needed ? require_size(name, "max_seq_len", options.max_seq_len) : 0;
}

// The options, once they are known to make sense: members are built from them.
const TransformerEmbedding::Options& checked(const TransformerEmbedding::Options& options) {
  require_probability(name, "dropout", options.dropout);
  require_size(name, "vocab_size", options.vocab_size);
  require_size(name, "embed_dim", options.embed_dim);
  std::int64_t rows = most_tokens(options);
  if (__builtin_add_overflow(rows, options.position_offset, &rows))
    throw ValueError(fmt::format("{}: max_seq_len is {}; with position_offset {} that is too large for a table", name,
                                 options.max_seq_len, options.position_offset));
  if (options.position_offset < 0)
    throw ValueError(
        fmt::format("TransformerEmbedding: position_offset is {}; it must not be negative", options.position_offset));
  if (options.init_std && !(*options.init_std >= 0.0))
    throw ValueError(fmt::format("TransformerEmbedding: init_std is {}; it must not be negative", *options.init_std));
  return options;
}

double start_std(const TransformerEmbedding::Options& options) {
  if (options.init_std) return *options.init_std;
  return options.embed_dim > 0 ? 1.0 / std::sqrt(static_cast<double>(options.embed_dim)) : 0.0;
}

}  // namespace

Tensor sinusoidal_table(std::int64_t rows, std::int64_t embed_dim, DType dtype) {
  const Shape shape{rows, embed_dim};
  std::vector<double> values(static_cast<std::size_t>(shape.numel()));
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t column = 0; column < embed_dim; ++column) {
      const std::int64_t even = column - column % 2;  // sine and cosine of a pair have one frequency
      const double exponent = static_cast<double>(even) / static_cast<double>(embed_dim);
      const double angle = static_cast<double>(row) / std::pow(10000.0, exponent);
      values[static_cast<std::size_t>(row * embed_dim + column)] = column % 2 == 0 ? std::sin(angle) : std::cos(angle);
    }
  // Rounded on the host: not every backend has float64.
  if (dtype == DType::float64) return tensor(values, shape);
  return tensor(std::vector<float>(values.begin(), values.end()), shape).to(dtype);
}

PositionEmbedding::PositionEmbedding(const Options& options) {
  if (options.kind == PositionTable::none) return;
  const std::int64_t rows = require_size("PositionEmbedding", "rows", options.rows);
  const std::int64_t width = require_size("PositionEmbedding", "embed_dim", options.embed_dim);
  if (options.kind == PositionTable::sinusoidal) {
    weight = sinusoidal_table(rows, width, options.dtype);
    register_buffer("weight", weight, false);
  } else {
    weight = empty({rows, width}, options.dtype);
    normal_(weight, 0.0, options.init_std);
    register_parameter("weight", weight, options.kind == PositionTable::learned);
  }
}

TransformerEmbedding::TransformerEmbedding(const Options& options)
    : token_embed({.num_embeddings = checked(options).vocab_size,
                   .embedding_dim = options.embed_dim,
                   .padding_idx = options.padding_idx,
                   .init_std = start_std(options),
                   .dtype = options.dtype}),
      pos_embed({.rows = options.position_offset + most_tokens(options),
                 .embed_dim = options.embed_dim,
                 .kind = options.positions,
                 .init_std = start_std(options),
                 .dtype = options.dtype}),
      max_seq_len_(most_tokens(options)),
      position_offset_(options.position_offset),
      positions_(options.positions),
      dropout_(options.dropout) {
  register_module("token_embed", token_embed);
  register_module("pos_embed", pos_embed);
}

void TransformerEmbedding::set_dropout(double p) {
  require_probability(name, "dropout", p);
  dropout_ = p;
}

Tensor TransformerEmbedding::forward(const Tensor& ids, const Place& place) const {
  require_defined(name, "ids", ids);
  if (ids.dim() != 1 && ids.dim() != 2)
    throw ShapeError(fmt::format("TransformerEmbedding: ids must have shape (T) or (B, T), got {}", ids.shape().str()));
  if (positions_ == PositionTable::none) return wengert::dropout(token_embed(ids), dropout_, is_training());

  EmbedDropoutOptions options{.p = dropout_, .training = is_training(), .padding_idx = token_embed.padding_idx()};
  if (place.position_ids.defined()) {
    options.position_ids = place.position_ids;
  } else {
    const std::int64_t length = ids.size(-1);
    if (place.offset < 0) throw IndexError(fmt::format("TransformerEmbedding: offset {} is negative", place.offset));
    if (place.offset > max_seq_len_ || length > max_seq_len_ - place.offset)
      throw IndexError(fmt::format("TransformerEmbedding: offset {} + length {} exceeds max_seq_len {}", place.offset,
                                   length, max_seq_len_));
    options.offset = position_offset_ + place.offset;
  }
  return embed_dropout(token_embed.weight, pos_embed.weight, ids, options);
}

namespace {

// Tokens count up from `first` along the last axis; what `is_token` rejects gets `padding`.
template <class IsToken>
Tensor count_positions(const Tensor& ids, std::int64_t first, std::int64_t padding, IsToken is_token) {
  std::vector<std::int64_t> values = ids.to_vector<std::int64_t>();
  const std::int64_t length = ids.size(-1);
  std::int64_t next = first;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (static_cast<std::int64_t>(i) % length == 0) next = first;
    values[i] = is_token(values[i]) ? next++ : padding;
  }
  return tensor(values, ids.shape(), ids.backend());
}

void check_integers(const char* function, const char* what, const Tensor& ids) {
  if (is_floating(ids.dtype()))
    throw DTypeError(fmt::format("{}: {} must be int32 or int64, got {}", function, what, name_of(ids.dtype())));
  if (ids.dim() == 0)
    throw ShapeError(fmt::format("{}: {} must have an axis to count along, got a scalar", function, what));
}

}  // namespace

Tensor position_ids_from_padding(const Tensor& ids, std::int64_t padding_idx) {
  check_integers("position_ids_from_padding", "ids", ids);
  if (padding_idx < 0)
    throw IndexError(fmt::format("position_ids_from_padding: padding_idx is {}; it must not be negative", padding_idx));
  return count_positions(ids, padding_idx + 1, padding_idx, [=](std::int64_t id) { return id != padding_idx; });
}

Tensor position_ids_from_mask(const Tensor& mask) {
  check_integers("position_ids_from_mask", "mask", mask);
  return count_positions(mask, 0, 0, [](std::int64_t value) { return value != 0; });
}

}  // namespace wengert::layers
