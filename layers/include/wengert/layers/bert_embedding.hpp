#pragma once
/// BertEmbedding: the input layer of BERT.

#include <cstdint>
#include <optional>

#include "wengert/layers/embedding.hpp"
#include "wengert/layers/layer_norm.hpp"
#include "wengert/layers/module.hpp"

namespace wengert::layers {

/// dropout(LayerNorm(word_embeddings[ids] + position_embeddings[positions] + token_type_embeddings[types])).
///
/// State-dict keys as in BERT's checkpoints: word_embeddings.weight, position_embeddings.weight,
/// token_type_embeddings.weight, LayerNorm.weight, LayerNorm.bias. Source: Devlin et al., "BERT", NAACL 2019.
class BertEmbedding : public Module {
 public:
  struct Options {
    std::int64_t vocab_size = required;
    std::int64_t max_seq_len = required;
    std::int64_t embed_dim = required;
    std::int64_t type_vocab_size = 2;
    double dropout = 0.1;
    std::optional<std::int64_t> padding_idx = 0;  ///< a token row that starts as zeros and gets no gradient
    double layer_norm_eps = 1e-12;
    double init_std = 0.02;  ///< all tables start N(0, init_std^2)
    DType dtype = DType::float32;
  };
  struct Input {
    Tensor token_type_ids{};  ///< of the shape of ids; undefined: all 0
    Tensor position_ids{};    ///< (T) or (B, T); undefined: 0, 1, ...
  };

  /// Throws ValueError for settings that are missing or out of range, IndexError for a padding_idx outside the
  /// vocabulary.
  explicit BertEmbedding(const Options& options);

  /// ids (T) or (B, T) -> (..., T, embed_dim). Throws IndexError for more than max_seq_len tokens and for an id outside
  /// its table, ShapeError for token_type_ids of another shape than ids.
  Tensor forward(const Tensor& ids, const Input& input) const;
  Tensor operator()(const Tensor& ids) const { return forward(ids, {}); }
  Tensor operator()(const Tensor& ids, const Input& input) const { return forward(ids, input); }

  Embedding word_embeddings, position_embeddings, token_type_embeddings;
  LayerNorm norm;  ///< registered as "LayerNorm"

 private:
  double dropout_;
};

}  // namespace wengert::layers
