#pragma once
/// Weights that other programs have named: their names and layouts turned into ours.

#include <span>
#include <string_view>

#include "wengert/named.hpp"

namespace wengert::io {

/// What becomes of a tensor of another program.
struct Rename {
  /// Its name; a '*' stands for any text without a dot: "h.*.ln_1.weight".
  std::string_view theirs;
  /// Its name here, where a '*' repeats that text; empty: the tensor is left out.
  std::string_view ours;
  /// A matrix that is stored the other way round, (in, out) instead of (out, in).
  bool transpose = false;
  /// Part number `part` of the `parts` tensors that are joined along the first axis under the name `ours`.
  int part = 0, parts = 1;
};

/// Each tensor under the name, and in the layout, that the first rule that fits gives it; without a rule it stays as it
/// is, so that a strict `load_state_dict` lists it. `prefix` is taken off the names that begin with it. Throws Error
/// for an undefined tensor, for a part that is missing and for two tensors that get one name.
NamedTensors rename(const NamedTensors& tensors, std::span<const Rename> rules, std::string_view prefix = {});

/// GPT-2 as Hugging Face's files hold it, prefix "transformer.", for a model of these members:
///
///     layers::TransformerEmbedding embed;
///     layers::ModuleList<layers::TransformerBlock> blocks;  // gelu_tanh, norm_first
///     layers::LayerNorm norm;
///
/// The head, where there is one, is tied to embed.token_embed.weight: it is not in the file. Nothing is joined here, so
/// that each rule with its names exchanged is the way back.
inline constexpr Rename gpt2_names[] = {
    {"wte.weight", "embed.token_embed.weight"},
    {"wpe.weight", "embed.pos_embed.weight"},
    {"h.*.ln_1.weight", "blocks.*.norm1.weight"},
    {"h.*.ln_1.bias", "blocks.*.norm1.bias"},
    {"h.*.attn.c_attn.weight", "blocks.*.self_attn.in_proj_weight", true},
    {"h.*.attn.c_attn.bias", "blocks.*.self_attn.in_proj_bias"},
    {"h.*.attn.c_proj.weight", "blocks.*.self_attn.out_proj.weight", true},
    {"h.*.attn.c_proj.bias", "blocks.*.self_attn.out_proj.bias"},
    {"h.*.ln_2.weight", "blocks.*.norm2.weight"},
    {"h.*.ln_2.bias", "blocks.*.norm2.bias"},
    {"h.*.mlp.c_fc.weight", "blocks.*.linear1.weight", true},
    {"h.*.mlp.c_fc.bias", "blocks.*.linear1.bias"},
    {"h.*.mlp.c_proj.weight", "blocks.*.linear2.weight", true},
    {"h.*.mlp.c_proj.bias", "blocks.*.linear2.bias"},
    {"ln_f.weight", "norm.weight"},
    {"ln_f.bias", "norm.bias"},
    {"h.*.attn.bias", ""},  // the causal mask, a constant
    {"h.*.attn.masked_bias", ""},
};

/// BERT as Hugging Face's files hold it, prefix "bert.", with the older names of the layer norms too, for a model of
/// these members:
///
///     layers::BertEmbedding embed;
///     layers::ModuleList<layers::TransformerBlock> blocks;  // gelu, layer_norm_eps 1e-12
///
/// The pooler and the heads of its training keep their names.
inline constexpr Rename bert_names[] = {
    {"embeddings.LayerNorm.gamma", "embed.LayerNorm.weight"},
    {"embeddings.LayerNorm.beta", "embed.LayerNorm.bias"},
    {"embeddings.*.weight", "embed.*.weight"},
    {"embeddings.*.bias", "embed.*.bias"},
    {"embeddings.position_ids", ""},  // 0, 1, ...
    {"embeddings.token_type_ids", ""},
    {"encoder.layer.*.attention.self.query.weight", "blocks.*.self_attn.in_proj_weight", false, 0, 3},
    {"encoder.layer.*.attention.self.key.weight", "blocks.*.self_attn.in_proj_weight", false, 1, 3},
    {"encoder.layer.*.attention.self.value.weight", "blocks.*.self_attn.in_proj_weight", false, 2, 3},
    {"encoder.layer.*.attention.self.query.bias", "blocks.*.self_attn.in_proj_bias", false, 0, 3},
    {"encoder.layer.*.attention.self.key.bias", "blocks.*.self_attn.in_proj_bias", false, 1, 3},
    {"encoder.layer.*.attention.self.value.bias", "blocks.*.self_attn.in_proj_bias", false, 2, 3},
    {"encoder.layer.*.attention.output.dense.weight", "blocks.*.self_attn.out_proj.weight"},
    {"encoder.layer.*.attention.output.dense.bias", "blocks.*.self_attn.out_proj.bias"},
    {"encoder.layer.*.attention.output.LayerNorm.weight", "blocks.*.norm1.weight"},
    {"encoder.layer.*.attention.output.LayerNorm.gamma", "blocks.*.norm1.weight"},
    {"encoder.layer.*.attention.output.LayerNorm.bias", "blocks.*.norm1.bias"},
    {"encoder.layer.*.attention.output.LayerNorm.beta", "blocks.*.norm1.bias"},
    {"encoder.layer.*.intermediate.dense.weight", "blocks.*.linear1.weight"},
    {"encoder.layer.*.intermediate.dense.bias", "blocks.*.linear1.bias"},
    {"encoder.layer.*.output.dense.weight", "blocks.*.linear2.weight"},
    {"encoder.layer.*.output.dense.bias", "blocks.*.linear2.bias"},
    {"encoder.layer.*.output.LayerNorm.weight", "blocks.*.norm2.weight"},
    {"encoder.layer.*.output.LayerNorm.gamma", "blocks.*.norm2.weight"},
    {"encoder.layer.*.output.LayerNorm.bias", "blocks.*.norm2.bias"},
    {"encoder.layer.*.output.LayerNorm.beta", "blocks.*.norm2.bias"},
};

}  // namespace wengert::io
