#pragma once
/// Embedding: a table of vectors, looked up by id.

#include <cstdint>
#include <optional>

#include "wengert/layers/module.hpp"

namespace wengert::layers {

/// A trained table (num_embeddings, embedding_dim). Its gradient is row-sparse.
class Embedding : public Module {
 public:
  struct Options {
    std::int64_t num_embeddings = required;  ///< 0 is a size
    std::int64_t embedding_dim = required;
    /// A row whose gradient is exactly zero. It starts as zeros; a lookup returns what is stored in it, and values
    /// given later (from_pretrained, load_state_dict, an initialiser of your own) are kept.
    std::optional<std::int64_t> padding_idx{};
    double init_std = 1.0;  ///< starts with N(0, init_std^2)
    DType dtype = DType::float32;
  };
  struct Pretrained {
    bool freeze = true;
    std::optional<std::int64_t> padding_idx{};
  };

  /// Throws IndexError for a padding_idx outside the table, ValueError for a size that is missing or negative, and
  /// for a negative init_std.
  explicit Embedding(const Options& options);
  /// A module around a given table, whose memory it shares; frozen unless told otherwise.
  static Embedding from_pretrained(const Tensor& table, const Pretrained& options);
  static Embedding from_pretrained(const Tensor& table) { return from_pretrained(table, Pretrained()); }

  /// ids (...), int32 or int64 -> (..., embedding_dim). Throws IndexError for an id outside the table.
  Tensor forward(const Tensor& ids) const;
  Tensor operator()(const Tensor& ids) const { return forward(ids); }

  const std::optional<std::int64_t>& padding_idx() const { return padding_idx_; }

  Tensor weight;

 private:
  Embedding(const Tensor& table, const Pretrained& options);
  std::optional<std::int64_t> padding_idx_;
};

}  // namespace wengert::layers
