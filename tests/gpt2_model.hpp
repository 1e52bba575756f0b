#pragma once
/// GPT-2, for weights that come from Hugging Face's files and go back to them.

#include "wengert/layers.hpp"
#include "wengert/ops.hpp"

namespace wengert::testing {

struct Gpt2 : layers::Module {
  struct Options {
    std::int64_t vocab_size = 0, max_seq_len = 0, embed_dim = 0, num_heads = 0, depth = 0;
  };
  layers::TransformerEmbedding embed;
  layers::ModuleList<layers::TransformerBlock> blocks;
  layers::LayerNorm norm;

  explicit Gpt2(const Options& options)
      : embed({.vocab_size = options.vocab_size, .max_seq_len = options.max_seq_len, .embed_dim = options.embed_dim}),
        norm({.normalized_shape = {options.embed_dim}}) {
    for (std::int64_t i = 0; i < options.depth; ++i)
      blocks.emplace_back({.embed_dim = options.embed_dim,
                           .num_heads = options.num_heads,
                           .feedforward_dim = 4 * options.embed_dim,
                           .activation = layers::Activation::gelu_tanh,
                           .norm_first = true});
    register_module("embed", embed);
    register_module("blocks", blocks);
    register_module("norm", norm);
    eval();
  }
  /// ids (B, T) -> (B, T, embed_dim).
  Tensor operator()(const Tensor& ids) const {
    Tensor x = embed(ids);
    for (std::size_t i = 0; i < blocks.size(); ++i) x = blocks[i](x, {.causal = true});
    return norm(x);
  }
  /// The head is the token table: (B, T, vocab_size).
  Tensor logits(const Tensor& ids) const { return linear((*this)(ids), embed.token_embed.weight); }
};

}  // namespace wengert::testing
