#include "wengert/layers/bert_embedding.hpp"

#include "check.hpp"
#include "wengert/ops.hpp"

namespace wengert::layers {

namespace {

constexpr const char* name = "BertEmbedding";

}  // namespace

BertEmbedding::BertEmbedding(const Options& options)
    : word_embeddings({.num_embeddings = require_positive(name, "vocab_size", options.vocab_size),
                       .embedding_dim = require_positive(name, "embed_dim", options.embed_dim),
                       .padding_idx = options.padding_idx,
                       .init_std = options.init_std,
                       .dtype = options.dtype}),
      position_embeddings({.num_embeddings = require_positive(name, "max_seq_len", options.max_seq_len),
                           .embedding_dim = options.embed_dim,
                           .init_std = options.init_std,
                           .dtype = options.dtype}),
      token_type_embeddings({.num_embeddings = require_positive(name, "type_vocab_size", options.type_vocab_size),
                             .embedding_dim = options.embed_dim,
                             .init_std = options.init_std,
                             .dtype = options.dtype}),
      norm({.normalized_shape = {options.embed_dim}, .eps = options.layer_norm_eps, .dtype = options.dtype}),
      dropout_(require_probability(name, "dropout", options.dropout)) {
  register_module("word_embeddings", word_embeddings);
  register_module("position_embeddings", position_embeddings);
  register_module("token_type_embeddings", token_type_embeddings);
  register_module("LayerNorm", norm);
}

Tensor BertEmbedding::forward(const Tensor& ids, const Input& input) const {
  require_defined(name, "ids", ids);
  const Tensor types =
      input.token_type_ids.defined() ? input.token_type_ids : zeros(ids.shape(), DType::int64, ids.backend());
  if (!(types.shape() == ids.shape()))
    throw ShapeError(fmt::format("{}: token_type_ids of shape {} do not fit ids of shape {}", name, types.shape().str(),
                                 ids.shape().str()));
  const Tensor placed =
      embed_dropout(word_embeddings.weight, position_embeddings.weight, ids,
                    {.padding_idx = word_embeddings.padding_idx(), .position_ids = input.position_ids});
  return dropout(norm(placed + token_type_embeddings(types)), dropout_, is_training());
}

}  // namespace wengert::layers
