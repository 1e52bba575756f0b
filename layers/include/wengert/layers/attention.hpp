#pragma once
/// Multi-head attention.

#include <cstdint>

#include "wengert/layers/linear.hpp"
#include "wengert/layers/module.hpp"

namespace wengert::layers {

/// Which keys a query may see.
struct AttentionMask {
  bool causal = false;  ///< query i sees keys 0 .. i (the last query sees all, if there are more keys than queries)
  /// (B, keys), a constant: an integer tensor, not 0 at padding, which nobody sees; or of the layer's type, added to
  /// the scores. As torch.nn.MultiheadAttention's.
  Tensor key_padding_mask{};
};

/// out_proj(attention over num_heads parts of the projected queries, keys and values).
///
/// State-dict keys, shapes and start as of torch.nn.MultiheadAttention, whose weights load unchanged: in_proj_weight (3
/// E, E), in_proj_bias (3 E), out_proj.weight (E, E), out_proj.bias (E). Source: Vaswani et al., "Attention is all you
/// need", NIPS 2017, section 3.2.2.
class MultiHeadAttention : public Module {
 public:
  struct Options {
    std::int64_t embed_dim = required;  ///< E, a multiple of num_heads
    std::int64_t num_heads = required;
    double dropout = 0.0;  ///< on the attention weights, in training
    bool bias = true;
    DType dtype = DType::float32;
  };
  /// Throws ValueError for settings that are missing or do not fit.
  explicit MultiHeadAttention(const Options& options);

  /// Self-attention: x (B, T, E) -> (B, T, E). A query that may see no key gets out_proj's bias.
  Tensor forward(const Tensor& x, const AttentionMask& mask) const;
  /// query (B, Tq, E), key and value (B, Tk, E) -> (B, Tq, E).
  Tensor forward(const Tensor& query, const Tensor& key, const Tensor& value, const AttentionMask& mask) const;
  Tensor operator()(const Tensor& x) const { return forward(x, {}); }
  Tensor operator()(const Tensor& x, const AttentionMask& mask) const { return forward(x, mask); }
  Tensor operator()(const Tensor& query, const Tensor& key, const Tensor& value) const {
    return forward(query, key, value, {});
  }
  Tensor operator()(const Tensor& query, const Tensor& key, const Tensor& value, const AttentionMask& mask) const {
    return forward(query, key, value, mask);
  }

  Tensor in_proj_weight;
  Tensor in_proj_bias;  ///< undefined if there is none
  Linear out_proj;

 private:
  std::int64_t num_heads_;
  double dropout_;
};

}  // namespace wengert::layers
