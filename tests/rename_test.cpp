/// Weights of other programs: names and layouts; tiny models of GPT-2 and BERT compute what the originals computed.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "file_tools.hpp"
#include "gpt2_model.hpp"
#include "wengert/io.hpp"
#include "wengert/layers.hpp"

using namespace wengert;
using namespace wengert::testing;
using io::Rename;
using layers::Activation;

namespace {

using Values = std::vector<double>;
using Names = std::vector<std::string>;

void check_close(const Tensor& actual, const Tensor& wanted, double tolerance) {
  REQUIRE(actual.shape() == wanted.shape());
  const Values a = actual.to_vector<double>(), b = wanted.to_vector<double>();
  double largest = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  CHECK(largest < tolerance);
}

struct Bert : layers::Module {
  layers::BertEmbedding embed{{.vocab_size = 11, .max_seq_len = 6, .embed_dim = 8}};
  layers::ModuleList<layers::TransformerBlock> blocks;
  Bert() {
    for (int i = 0; i < 2; ++i)
      blocks.emplace_back({.embed_dim = 8,
                           .num_heads = 2,
                           .feedforward_dim = 12,
                           .activation = Activation::gelu,
                           .layer_norm_eps = 1e-12});
    register_module("embed", embed);
    register_module("blocks", blocks);
    eval();
  }
  Tensor operator()(const Tensor& ids, const Tensor& types, const Tensor& padding) const {
    Tensor x = embed(ids, {.token_type_ids = types});
    for (std::size_t i = 0; i < blocks.size(); ++i) x = blocks[i](x, {.key_padding_mask = padding});
    return x;
  }
};

}  // namespace

TEST_CASE("GPT-2: weights from Hugging Face's file compute what they computed there") {
  const NamedTensors wanted = io::load_safetensors(data_file("gpt2_out.safetensors"));
  Gpt2 model({.vocab_size = 11, .max_seq_len = 6, .embed_dim = 8, .num_heads = 2, .depth = 2});
  model.load_state_dict(
      io::rename(io::load_safetensors(data_file("gpt2.safetensors")), io::gpt2_names, "transformer."));
  check_close(model(find(wanted, "ids")), find(wanted, "out"), 1e-5);
}

TEST_CASE("BERT: weights from Hugging Face's file compute what they computed there, under new names and old") {
  const NamedTensors wanted = io::load_safetensors(data_file("bert_out.safetensors"));
  std::vector<std::int64_t> mask = find(wanted, "mask").to_vector<std::int64_t>();  // 1 at tokens; ours is 1 at padding
  for (std::int64_t& value : mask) value = 1 - value;
  const Tensor padding = tensor(mask, find(wanted, "mask").shape());
  NamedTensors theirs = io::load_safetensors(data_file("bert.safetensors"));
  for (const bool old : {false, true}) {
    CAPTURE(old);
    if (old) {
      const Rename first[] = {
          {"embeddings.LayerNorm.weight", "embeddings.LayerNorm.gamma"},
          {"embeddings.LayerNorm.bias", "embeddings.LayerNorm.beta"},
          {"encoder.layer.*.attention.output.LayerNorm.weight", "encoder.layer.*.attention.output.LayerNorm.gamma"},
          {"encoder.layer.*.output.LayerNorm.bias", "encoder.layer.*.output.LayerNorm.beta"}};
      theirs = io::rename(theirs, first, "bert.");
    }
    Bert model;
    model.load_state_dict(io::rename(theirs, io::bert_names, "bert."));
    check_close(model(find(wanted, "ids"), find(wanted, "types"), padding), find(wanted, "out"), 1e-5);
  }
}

TEST_CASE("rename: rules, prefixes, parts") {
  const Tensor a = tensor<float>({{1, 2, 3}, {4, 5, 6}}), b = tensor<float>({{7, 8, 9}});
  const Rename rules[] = {{"a.*.kernel", "b.*.weight", true},
                          {"gone.*", ""},
                          {"one", "joined", false, 1, 2},
                          {"zero", "joined", false, 0, 2},
                          {"x*y", "*"}};
  const NamedTensors out = io::rename(
      {{"p.a.7.kernel", a}, {"one", a}, {"other", b}, {"gone.1", a}, {"zero", b}, {"p.xZy", b}, {"a.7.8.kernel", b}},
      rules, "p.");
  Names names;
  for (const NamedTensor& entry : out) names.push_back(entry.name);
  CHECK(names == Names{"b.7.weight", "joined", "other", "Z", "a.7.8.kernel"});
  CHECK(out[0].tensor.shape() == Shape{3, 2});
  CHECK(out[0].tensor.to_vector<double>() == Values{1, 4, 2, 5, 3, 6});
  CHECK(out[1].tensor.to_vector<double>() == Values{7, 8, 9, 1, 2, 3, 4, 5, 6});
  CHECK(out[2].tensor.is(b));
  CHECK_THROWS_WITH_AS(io::rename({{"one", a}}, rules), "rename: joined is joined of 2 tensors; number 0 is missing",
                       Error);
  CHECK_THROWS_WITH_AS(io::rename({{"w", a}, {"p.w", b}}, rules, "p."), "rename: two tensors become w; one is p.w",
                       Error);
  const Rename odd[] = {{"one", "w", false, 2, 2}, {"two", "v", false, 0, 2}, {"three", "v"}};
  CHECK_THROWS_WITH_AS(io::rename({{"one", a}}, odd), "rename: one cannot be part 2 of 2 of w", Error);
  CHECK_THROWS_WITH_AS(io::rename({{"two", a}, {"three", a}}, odd), "rename: three cannot be part 0 of 1 of v", Error);
  CHECK_THROWS_AS(io::rename({{"w", Tensor()}}, {}), Error);
  CHECK(io::rename({{"w", a}}, {}).size() == 1);
}
