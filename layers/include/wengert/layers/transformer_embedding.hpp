#pragma once
/// TransformerEmbedding: the input layer of a transformer.

#include <cstdint>
#include <optional>

#include "wengert/layers/embedding.hpp"
#include "wengert/layers/module.hpp"

namespace wengert::layers {

/// What is added to the token vectors.
enum class PositionTable : std::uint8_t {
  learned,     ///< a trained table
  sinusoidal,  ///< sine and cosine waves, see `sinusoidal_table`; a buffer that is not in the state dict
  frozen,      ///< a random table like the start of a learned one, without a gradient; a parameter, in the state dict
  none,        ///< nothing
};

/// The table behind the positions, (rows, d): `weight` is a parameter, a buffer, or undefined, as PositionTable says.
class PositionEmbedding : public Module {
 public:
  struct Options {
    std::int64_t rows = required;  ///< unless there is no table
    std::int64_t embed_dim = required;
    PositionTable kind = PositionTable::learned;
    double init_std = 1.0;  ///< of a learned or frozen table: N(0, init_std^2)
    DType dtype = DType::float32;
  };
  explicit PositionEmbedding(const Options& options);

  Tensor weight;
};

/// dropout(token_embed.weight[ids] + pos_embed.weight[positions]).
///
/// State-dict keys: token_embed.weight and, for learned and frozen tables, pos_embed.weight.
class TransformerEmbedding : public Module {
 public:
  struct Options {
    std::int64_t vocab_size = required;  ///< 0 is a size
    /// The most tokens that fit: positions 0 .. max_seq_len - 1. Without positions it is neither required nor a limit.
    std::int64_t max_seq_len = required;
    std::int64_t embed_dim = required;
    double dropout = 0.1;
    std::optional<std::int64_t> padding_idx{};  ///< a token row that starts as zeros and gets no gradient
    std::optional<double> init_std{};  ///< both tables start N(0, init_std^2); 1 / sqrt(embed_dim) unless given
    PositionTable positions = PositionTable::learned;
    /// Rows in front of position 0: the table has position_offset + max_seq_len rows. A table of BART or RoBERTa with
    /// 514 rows and padding id 1 is {.max_seq_len = 512, .position_offset = 2}. See `position_ids_from_padding`.
    std::int64_t position_offset = 0;
    DType dtype = DType::float32;
  };
  struct Place {
    /// Rows of the position table, (T) or (B, T), int32 or int64; they win over `offset` and know no position_offset.
    Tensor position_ids{};
    std::int64_t offset = 0;  ///< position of the first token
  };

  /// Throws ValueError for a size that is missing or negative, a dropout outside [0, 1] or a negative init_std or
  /// position_offset, IndexError for a padding_idx outside the vocabulary.
  explicit TransformerEmbedding(const Options& options);

  /// ids (T) or (B, T), int32 or int64 -> (..., T, embed_dim). Throws IndexError when offset + T > max_seq_len, naming
  /// all three, and for an id or position id outside its table. Without a position table `place` is ignored and no
  /// length is too long.
  Tensor forward(const Tensor& ids, const Place& place) const;
  Tensor forward(const Tensor& ids) const { return forward(ids, Place()); }
  Tensor operator()(const Tensor& ids, const Place& place) const { return forward(ids, place); }
  Tensor operator()(const Tensor& ids) const { return forward(ids, Place()); }

  std::int64_t max_seq_len() const { return max_seq_len_; }
  PositionTable positions() const { return positions_; }
  double dropout() const { return dropout_; }
  void set_dropout(double p);

  Embedding token_embed;
  PositionEmbedding pos_embed;

 private:
  std::int64_t max_seq_len_, position_offset_;
  PositionTable positions_;
  double dropout_ = 0.0;
};

/// (rows, d): row p holds sin(p / 10000^(2i/d)) in column 2i and cos(p / 10000^(2i/d)) in column 2i + 1; computed in
/// double. Source: Vaswani et al., "Attention is all you need", NIPS 2017, section 3.5.
Tensor sinusoidal_table(std::int64_t rows, std::int64_t embed_dim, DType dtype = DType::float32);

/// Position ids by the rule of RoBERTa: tokens other than padding count up from padding_idx + 1 along the last axis,
/// padding stays at padding_idx: [5, 5, 1, 1] with padding 1 gives [2, 3, 1, 1]. A table of n rows so has room for n -
/// padding_idx - 1 tokens. ids (...), int32 or int64 -> int64 of the same shape and backend. Goes through the host.
Tensor position_ids_from_padding(const Tensor& ids, std::int64_t padding_idx);
/// Position ids for padding on any side: tokens, where mask is not 0, count up from 0 along the last axis; padding gets
/// 0, never -1: [0, 0, 1, 1, 1] gives [0, 0, 0, 1, 2]. mask (...), int32 or int64 -> int64 of the same shape and
/// backend. Goes through the host.
Tensor position_ids_from_mask(const Tensor& mask);

}  // namespace wengert::layers
