/// LayerNorm, MultiHeadAttention, TransformerBlock, ModuleList, BertEmbedding.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "tensor_tools.hpp"
#include "wengert/gradcheck.hpp"
#include "wengert/gradient.hpp"
#include "wengert/layers.hpp"
#include "wengert/ops.hpp"
#include "wengert/optim.hpp"
#include "wengert/random.hpp"
#include "wengert/tape.hpp"

using namespace wengert;
using doctest::Approx;
using layers::MultiHeadAttention;
using layers::TransformerBlock;
using testing::Values;
using testing::values_of;

namespace {

std::string keys_of(const layers::Module& module) {
  std::string text;
  for (const NamedTensor& entry : module.state_dict())
    text += (text.empty() ? "" : " ") + entry.name + entry.tensor.shape().str();
  return text;
}
void check_close(const Tensor& a, const Tensor& b, double tolerance = 2e-6) {
  REQUIRE(a.shape() == b.shape());
  const Values x = values_of(a), y = values_of(b);
  for (std::size_t i = 0; i < x.size(); ++i) CHECK(std::abs(x[i] - y[i]) <= tolerance * (1 + std::abs(y[i])));
}
Tensor part(const Tensor& x, std::int64_t row) { return slice(x, 0, row, row + 1); }

}  // namespace

TEST_CASE("LayerNorm: keys, start, options") {
  layers::LayerNorm norm({.normalized_shape = {3, 4}});
  CHECK(keys_of(norm) == "weight[3, 4] bias[3, 4]");
  CHECK(values_of(norm.weight) == Values(12, 1.0));
  CHECK(values_of(norm.bias) == Values(12, 0.0));
  CHECK(keys_of(layers::LayerNorm({.normalized_shape = {4}, .bias = false})) == "weight[4]");
  CHECK(keys_of(layers::LayerNorm({.normalized_shape = {4}, .elementwise_affine = false})).empty());
  CHECK(layers::LayerNorm({.normalized_shape = {4}, .dtype = DType::float64}).weight.dtype() == DType::float64);
  const Tensor x = randn({2, 3, 4});
  norm.weight.detach().fill_(2.0), norm.bias.detach().fill_(0.5);
  check_close(norm(x), layer_norm(x, {3, 4}) * 2.0 + 0.5);
  check_close(layers::LayerNorm({.normalized_shape = {4}, .eps = 0.5, .elementwise_affine = false})(x),
              layer_norm(x, 4, {}, {}, 0.5));
  CHECK_THROWS_WITH_AS(layers::LayerNorm({}),
                       "LayerNorm: normalized_shape is []; it must have an axis, and none of extent 0", ValueError);
  CHECK_THROWS_AS(layers::LayerNorm({.normalized_shape = {3, 0}}), ValueError);
  CHECK_THROWS_WITH_AS(layers::LayerNorm({.normalized_shape = {3}, .eps = -1.0}),
                       "LayerNorm: eps is -1; it must not be negative", ValueError);
}

TEST_CASE("MultiHeadAttention: keys and start as PyTorch's") {
  const MultiHeadAttention attention({.embed_dim = 64, .num_heads = 4});
  CHECK(keys_of(attention) == "in_proj_weight[192, 64] in_proj_bias[192] out_proj.weight[64, 64] out_proj.bias[64]");
  double largest = 0, squares = 0;
  for (const double x : values_of(attention.in_proj_weight)) largest = std::max(largest, std::abs(x)), squares += x * x;
  const double bound = std::sqrt(6.0 / (64 + 192));
  CHECK(largest <= bound);
  CHECK(largest > 0.99 * bound);
  CHECK(squares / (192 * 64) == Approx(bound * bound / 3).epsilon(0.05));
  CHECK(values_of(attention.in_proj_bias) == Values(192, 0.0));
  CHECK(values_of(attention.out_proj.bias) == Values(64, 0.0));
  for (const double x : values_of(attention.out_proj.weight)) CHECK(std::abs(x) <= 0.125);
  CHECK(keys_of(MultiHeadAttention({.embed_dim = 4, .num_heads = 1, .bias = false})) ==
        "in_proj_weight[12, 4] out_proj.weight[4, 4]");
}

TEST_CASE("MultiHeadAttention: written out head by head, and the same for three equal arguments") {
  MultiHeadAttention attention({.embed_dim = 6, .num_heads = 2});
  uniform_(attention.in_proj_bias, -1, 1);
  const Tensor x = randn({2, 5, 6});
  for (const bool causal : {false, true}) {
    const layers::AttentionMask mask{.causal = causal};
    const Tensor out = attention(x, mask);
    check_close(attention(x, x, x, mask), out);
    const Tensor all = linear(x, attention.in_proj_weight, attention.in_proj_bias);
    std::vector<Tensor> heads;
    for (std::int64_t head = 0; head < 2; ++head) {
      const auto projected = [&](std::int64_t which) {
        return slice(all, 2, 6 * which + 3 * head, 6 * which + 3 * head + 3);
      };
      Tensor scores = matmul(projected(0), transpose(projected(1), 1, 2)) / std::sqrt(3.0);
      if (causal) {
        Values future(25, 0.0);
        for (std::size_t i = 0; i < 25; ++i) future[i] = i % 5 > i / 5 ? -1e30 : 0.0;
        scores = scores + tensor(future, {5, 5}).to(DType::float32);
      }
      heads.push_back(matmul(softmax(scores), projected(2)));
    }
    check_close(out, attention.out_proj(concat(std::span<const Tensor>(heads), -1)), 1e-5);
  }
}

TEST_CASE("MultiHeadAttention: queries of another length than the keys") {
  const MultiHeadAttention attention({.embed_dim = 6, .num_heads = 3});
  const Tensor query = randn({2, 4, 6}), key = randn({2, 7, 6}), value = randn({2, 7, 6});
  const Tensor out = attention(query, key, value);
  CHECK(out.shape() == Shape{2, 4, 6});
  // Keys have no order of their own.
  const Tensor turned_key = concat({slice(key, 1, 3), slice(key, 1, 0, 3)}, 1),
               turned_value = concat({slice(value, 1, 3), slice(value, 1, 0, 3)}, 1);
  check_close(attention(query, turned_key, turned_value), out, 1e-5);
}

TEST_CASE("POS-03: padding, left or right, changes nothing for the tokens; a sequence of padding alone is finite") {
  TransformerBlock block({.embed_dim = 8, .num_heads = 2, .feedforward_dim = 16});
  block.eval();
  const Tensor tokens = randn({1, 3, 8}), noise = randn({1, 2, 8});
  const Tensor alone = block(tokens);
  for (const DType dtype : {DType::int64, DType::int32, DType::float32}) {
    const double out = dtype == DType::float32 ? -std::numeric_limits<double>::infinity() : 1.0;
    const Tensor left = tensor<double>({{out, out, 0, 0, 0}, {out, out, out, out, out}}).to(dtype),
                 right = tensor<double>({{0, 0, 0, out, out}, {out, out, out, out, out}}).to(dtype);
    const Tensor padded_left = concat({noise, tokens}, 1), padded_right = concat({tokens, noise}, 1);
    const Tensor first = block(concat({padded_left, padded_left}), {.key_padding_mask = left});
    const Tensor second = block(concat({padded_right, padded_right}), {.key_padding_mask = right});
    check_close(slice(part(first, 0), 1, 2), alone, 1e-5);
    check_close(slice(part(second, 0), 1, 0, 3), alone, 1e-5);
    for (const double x : values_of(first)) CHECK(std::isfinite(x));
  }
}

TEST_CASE("causal attention: what comes later changes nothing") {
  TransformerBlock block({.embed_dim = 8, .num_heads = 2, .feedforward_dim = 16, .norm_first = true});
  block.eval();
  const Tensor x = randn({2, 9, 8}), y = concat({slice(x, 1, 0, 5), randn({2, 4, 8})}, 1);
  const layers::AttentionMask causal{.causal = true};
  CHECK(values_of(slice(block(x, causal), 1, 0, 5)) == values_of(slice(block(y, causal), 1, 0, 5)));
  CHECK(values_of(slice(block(x), 1, 0, 5)) != values_of(slice(block(y), 1, 0, 5)));
}

TEST_CASE("TransformerBlock: keys, and both orders written out") {
  for (const bool norm_first : {false, true})
    for (const auto activation : {layers::Activation::relu, layers::Activation::gelu, layers::Activation::gelu_tanh}) {
      TransformerBlock block(
          {.embed_dim = 8, .num_heads = 2, .feedforward_dim = 12, .activation = activation, .norm_first = norm_first});
      CHECK(keys_of(block) ==
            "self_attn.in_proj_weight[24, 8] self_attn.in_proj_bias[24] self_attn.out_proj.weight[8, 8] "
            "self_attn.out_proj.bias[8] linear1.weight[12, 8] linear1.bias[12] linear2.weight[8, 12] linear2.bias[8] "
            "norm1.weight[8] norm1.bias[8] norm2.weight[8] norm2.bias[8]");
      for (const Tensor& parameter : block.parameters()) {
        Tensor values = parameter.detach();
        uniform_(values, -1, 1);
      }
      block.eval();
      const Tensor x = randn({2, 3, 8});
      const auto forward = [&](const Tensor& t) { return block.linear2(activate(activation, block.linear1(t))); };
      Tensor expected;
      if (norm_first) {
        const Tensor y = x + block.self_attn(block.norm1(x));
        expected = y + forward(block.norm2(y));
      } else {
        const Tensor y = block.norm1(x + block.self_attn(x));
        expected = block.norm2(y + forward(y));
      }
      CHECK(values_of(block(x)) == values_of(expected));
    }
  CHECK(keys_of(TransformerBlock({.embed_dim = 2, .num_heads = 1, .feedforward_dim = 3, .bias = false})) ==
        "self_attn.in_proj_weight[6, 2] self_attn.out_proj.weight[2, 2] linear1.weight[3, 2] linear2.weight[2, 3] "
        "norm1.weight[2] norm2.weight[2]");
}

TEST_CASE("TransformerBlock: dropout in four places, none of them in evaluation") {
  TransformerBlock block({.embed_dim = 8, .num_heads = 2, .feedforward_dim = 300, .dropout = 0.25});
  const Tensor x = randn({2, 3, 8});
  Generator generator(1);
  const GeneratorScope scope(generator);
  const auto drawn = [&] {
    const std::uint64_t before = generator.state().counter;
    block(x);
    return generator.state().counter - before;
  };
  // Weights: 2 x 2 x 3 rows of one group of 128; outputs of attention and linear2: 48 elements; 1800 hidden ones.
  CHECK(drawn() == 16 * (2 * 2 * 3 + 1 + 15 + 1));
  const Values first = values_of(block(x));
  CHECK(values_of(block(x)) != first);
  block.eval();
  CHECK(drawn() == 0);
  CHECK(values_of(block(x)) == values_of(block(x)));
}

TEST_CASE("TransformerBlock: gradients of all parameters, in float64") {
  try {
    current_backend().kernels(DType::float64);
  } catch (const DTypeError&) {
    return;
  }
  for (const bool norm_first : {false, true}) {
    TransformerBlock block({.embed_dim = 4,
                            .num_heads = 2,
                            .feedforward_dim = 5,
                            .dropout = 0.2,
                            .activation = layers::Activation::gelu,
                            .norm_first = norm_first,
                            .dtype = DType::float64});
    std::vector<Tensor> inputs{randn({2, 3, 4}, DType::float64).set_requires_grad()};
    for (const Tensor& parameter : block.parameters()) inputs.push_back(parameter);
    const auto run = [&](const std::vector<Tensor>& in) {
      Generator generator(5);
      const GeneratorScope scope(generator);
      return block(in[0], {.causal = true});
    };
    const GradcheckResult result = gradcheck(run, inputs);
    CHECK_MESSAGE(result.ok, result.message);
  }
}

TEST_CASE("transformer layers: settings that are missing or do not fit") {
  CHECK_THROWS_WITH_AS(MultiHeadAttention({.num_heads = 2}), "MultiHeadAttention: embed_dim is not given", ValueError);
  CHECK_THROWS_WITH_AS(MultiHeadAttention({.embed_dim = 8, .num_heads = 0}),
                       "MultiHeadAttention: num_heads is 0; it must be positive", ValueError);
  CHECK_THROWS_WITH_AS(MultiHeadAttention({.embed_dim = 8}), "MultiHeadAttention: num_heads is not given", ValueError);
  CHECK_THROWS_WITH_AS(MultiHeadAttention({.embed_dim = 8, .num_heads = 3}),
                       "MultiHeadAttention: embed_dim is 8; it must be a multiple of the 3 heads", ValueError);
  CHECK_THROWS_WITH_AS(MultiHeadAttention({.embed_dim = 8, .num_heads = 2, .dropout = 1.5}),
                       "MultiHeadAttention: dropout is 1.5; it must be in [0, 1]", ValueError);
  CHECK_THROWS_WITH_AS(TransformerBlock({.embed_dim = 8, .num_heads = 2}),
                       "TransformerBlock: feedforward_dim is not given", ValueError);
  CHECK_THROWS_WITH_AS(TransformerBlock({.num_heads = 2, .feedforward_dim = 3}),
                       "TransformerBlock: embed_dim is not given", ValueError);
  CHECK_THROWS_AS(TransformerBlock({.embed_dim = 8, .num_heads = 2, .feedforward_dim = 3, .dropout = -0.1}),
                  ValueError);
  const MultiHeadAttention attention({.embed_dim = 4, .num_heads = 2});
  CHECK_THROWS_WITH_AS(attention(zeros({3, 4})), "MultiHeadAttention: x must have shape (B, T, 4), got [3, 4]",
                       ShapeError);
  CHECK_THROWS_WITH_AS(attention(zeros({1, 3, 4}), zeros({1, 3, 5}), zeros({1, 3, 4})),
                       "MultiHeadAttention: key must have shape (B, T, 4), got [1, 3, 5]", ShapeError);
  CHECK_THROWS_AS(attention(zeros({1, 3, 4}), {.key_padding_mask = zeros({3}, DType::int64)}), ShapeError);
}

// --- Models ---

namespace {

struct Gpt : layers::Module {
  layers::TransformerEmbedding embed{{.vocab_size = 11, .max_seq_len = 8, .embed_dim = 8, .dropout = 0.0}};
  layers::ModuleList<TransformerBlock> blocks;
  layers::LayerNorm norm{{.normalized_shape = {8}}};
  layers::Linear head{{.in_features = 8, .out_features = 11, .bias = false}};
  explicit Gpt(bool tied) {
    for (int i = 0; i < 2; ++i)
      blocks.emplace_back({.embed_dim = 8,
                           .num_heads = 2,
                           .feedforward_dim = 16,
                           .dropout = 0.0,
                           .activation = layers::Activation::gelu,
                           .norm_first = true});
    if (tied) head.weight = embed.token_embed.weight;
    register_module("embed", embed);
    register_module("blocks", blocks);
    register_module("norm", norm);
    register_module("head", head);
  }
  Tensor operator()(const Tensor& ids) const {
    Tensor x = embed(ids);
    for (std::size_t i = 0; i < blocks.size(); ++i) x = blocks[i](x, {.causal = true});
    return head(norm(x));
  }
};

}  // namespace

TEST_CASE("ModuleList: numbered names, and modes reach its modules") {
  Gpt model(false);
  CHECK(model.blocks.size() == 2);
  CHECK(find(model.named_parameters(), "blocks.1.norm2.bias").is(model.blocks[1].norm2.bias));
  CHECK(model.blocks[1].norm2.bias.name() == "blocks.1.norm2.bias");
  model.eval();
  CHECK(!model.blocks[0].self_attn.is_training());
  const auto& constant = model.blocks;
  CHECK_THROWS_WITH_AS(model.blocks[2], "ModuleList: index 2 is outside [0, 2)", IndexError);
  CHECK_THROWS_WITH_AS(constant[2], "ModuleList: index 2 is outside [0, 2)", IndexError);
  layers::ModuleList<TransformerBlock> none;
  CHECK_THROWS_WITH_AS(none[0], "ModuleList: index 0 is outside [0, 0)", IndexError);
}

TEST_CASE("EMB-12: a tied head gives the table the gradients of both its uses") {
  Gpt tied(true), apart(false);
  CHECK(tied.num_parameters() == apart.num_parameters() - 88);
  NamedTensors state = tied.state_dict();
  apart.load_state_dict(state);
  CHECK(!apart.head.weight.is(apart.embed.token_embed.weight));
  const Tensor ids = tensor<std::int64_t>({{1, 4, 4, 10, 0}, {2, 1, 1, 1, 7}}),
               next = tensor<std::int64_t>({{4, 4, 10, 0, 3}, {1, 1, 1, 7, -100}});
  for (Gpt* model : {&tied, &apart}) {
    Tape tape;
    tape.backward(cross_entropy((*model)(ids), next));
  }
  CHECK(tied.head.weight.gradient().is_dense());
  CHECK(apart.embed.token_embed.weight.gradient().is_rows());
  check_close(tied.head.weight.grad(), apart.embed.token_embed.weight.grad() + apart.head.weight.grad());
  optim::AdamW optimizer(tied.named_parameters(), {.lr = 1e-2});
  optimizer.step();
  CHECK(tied.head.weight.is(tied.embed.token_embed.weight));
  CHECK(values_of(tied.head.weight) != values_of(apart.head.weight));
}

TEST_CASE("BertEmbedding: keys, start, and the sum of three tables") {
  layers::BertEmbedding bert({.vocab_size = 50, .max_seq_len = 20, .embed_dim = 24});
  CHECK(keys_of(bert) ==
        "word_embeddings.weight[50, 24] position_embeddings.weight[20, 24] token_type_embeddings.weight[2, 24] "
        "LayerNorm.weight[24] LayerNorm.bias[24]");
  double squares = 0;
  for (const double x : values_of(bert.position_embeddings.weight)) squares += x * x;
  CHECK(std::sqrt(squares / 480) == Approx(0.02).epsilon(0.15));
  CHECK(values_of(part(bert.word_embeddings.weight, 0)) == Values(24, 0.0));
  const Tensor ids = tensor<std::int64_t>({{3, 0, 49}, {7, 7, 1}}),
               types = tensor<std::int64_t>({{0, 1, 1}, {0, 0, 1}});
  Generator generator(4);
  const GeneratorScope scope(generator);
  CHECK(values_of(bert(ids)) != values_of(bert(ids)));
  bert.eval();
  const auto expected = [&](const Tensor& type_ids, const Tensor& places) {
    return layer_norm(embedding(bert.word_embeddings.weight, ids) + embedding(bert.position_embeddings.weight, places) +
                          embedding(bert.token_type_embeddings.weight, type_ids),
                      24, {}, {}, 1e-12);
  };
  check_close(bert(ids), expected(zeros({2, 3}, DType::int64), arange(0, 3)), 1e-5);
  check_close(bert(ids, {.token_type_ids = types}), expected(types, arange(0, 3)), 1e-5);
  const Tensor places = tensor<std::int64_t>({5, 5, 19});
  check_close(bert(ids, {.token_type_ids = types, .position_ids = places}), expected(types, places), 1e-5);
  {
    Tape tape;
    tape.backward(sum(square(bert(ids, {.token_type_ids = types}) + 1.0)));
  }
  CHECK(bert.word_embeddings.weight.gradient().is_rows());
  CHECK(values_of(part(bert.word_embeddings.weight.grad(), 0)) == Values(24, 0.0));
  CHECK(bert.token_type_embeddings.weight.gradient().rows().count() == 2);
}

TEST_CASE("BertEmbedding: what it refuses") {
  using layers::BertEmbedding;
  CHECK_THROWS_WITH_AS(BertEmbedding({.vocab_size = 5, .embed_dim = 4}), "BertEmbedding: max_seq_len is not given",
                       ValueError);
  CHECK_THROWS_WITH_AS(BertEmbedding({.max_seq_len = 5, .embed_dim = 4}), "BertEmbedding: vocab_size is not given",
                       ValueError);
  CHECK_THROWS_AS(BertEmbedding({.vocab_size = 5, .max_seq_len = 5, .embed_dim = 4, .dropout = 2.0}), ValueError);
  CHECK_THROWS_AS(BertEmbedding({.vocab_size = 5, .max_seq_len = 5, .embed_dim = 4, .padding_idx = 5}), IndexError);
  const BertEmbedding bert({.vocab_size = 5, .max_seq_len = 3, .embed_dim = 4});
  CHECK_THROWS_AS(bert(tensor<std::int64_t>({0, 1, 2, 3})), IndexError);
  CHECK_THROWS_AS(bert(tensor<std::int64_t>({5})), IndexError);
  CHECK_THROWS_AS(bert(tensor<std::int64_t>({1, 1}), {.token_type_ids = tensor<std::int64_t>({0, 2})}), IndexError);
  CHECK_THROWS_WITH_AS(bert(tensor<std::int64_t>({1, 1}), {.token_type_ids = tensor<std::int64_t>({0})}),
                       "BertEmbedding: token_type_ids of shape [1] do not fit ids of shape [2]", ShapeError);
}
