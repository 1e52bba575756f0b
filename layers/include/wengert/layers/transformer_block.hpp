#pragma once
/// One layer of a transformer: attention, then a small network at each position.

#include <cstdint>

#include "wengert/layers/attention.hpp"
#include "wengert/layers/layer_norm.hpp"
#include "wengert/layers/linear.hpp"
#include "wengert/layers/module.hpp"

namespace wengert::layers {

enum class Activation : std::uint8_t { relu, gelu, gelu_tanh };
/// relu(x), or gelu(x) in one of its two forms.
Tensor activate(Activation activation, const Tensor& x);

/// With d for dropout and f = linear2(d(activation(linear1(.)))):
///
///     norm_first:  x += d(self_attn(norm1(x)));  x += d(f(norm2(x)))      pre-LN, as GPT-2
///     otherwise:   x = norm1(x + d(self_attn(x)));  x = norm2(x + d(f(x)))    post-LN, as BERT
///
/// The attention weights are dropped too. State-dict keys, places of dropout and start as of
/// torch.nn.TransformerEncoderLayer, whose weights load unchanged: self_attn.in_proj_weight, ..., linear1.weight, ...,
/// linear2.weight, ..., norm1.weight, ..., norm2.weight, ...
/// Sources: Vaswani et al. 2017; Xiong et al., "On layer normalization in the transformer architecture", ICML 2020.
class TransformerBlock : public Module {
 public:
  struct Options {
    std::int64_t embed_dim = required;
    std::int64_t num_heads = required;
    std::int64_t feedforward_dim = required;
    double dropout = 0.1;
    Activation activation = Activation::relu;
    bool norm_first = false;
    double layer_norm_eps = 1e-5;
    bool bias = true;  ///< of all parts
    DType dtype = DType::float32;
  };
  /// Throws ValueError for settings that are missing or do not fit.
  explicit TransformerBlock(const Options& options);

  /// x (B, T, embed_dim) -> (B, T, embed_dim).
  Tensor forward(const Tensor& x, const AttentionMask& mask) const;
  Tensor operator()(const Tensor& x) const { return forward(x, {}); }
  Tensor operator()(const Tensor& x, const AttentionMask& mask) const { return forward(x, mask); }

  MultiHeadAttention self_attn;
  Linear linear1, linear2;
  LayerNorm norm1, norm2;

 private:
  Tensor drop(const Tensor& x) const;
  Tensor feed_forward(const Tensor& x) const;

  double dropout_;
  Activation activation_;
  bool norm_first_;
};

}  // namespace wengert::layers
