/// Modules: names, tied weights, modes, state dicts, moving.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "tensor_tools.hpp"
#include "wengert/gradient.hpp"
#include "wengert/layers.hpp"
#include "wengert/ops.hpp"
#include "wengert/optim.hpp"
#include "wengert/tape.hpp"

using namespace wengert;
using testing::make;
using testing::Names;
using testing::names_of;
using testing::Values;
using testing::values_of;

namespace {

struct Model : layers::Module {
  layers::TransformerEmbedding embed{{.vocab_size = 6, .max_seq_len = 8, .embed_dim = 4}};
  layers::Linear head{{.in_features = 4, .out_features = 6}};
  Tensor scale = ones({1}), table = zeros({2}), hidden = zeros({3});
  explicit Model(bool tied = false) {
    if (tied) head.weight = embed.token_embed.weight;
    register_module("embed", embed);
    register_module("head", head);
    register_parameter("scale", scale);
    register_buffer("table", table);
    register_buffer("hidden", hidden, false);
  }
};

/// Copies with memory of their own.
NamedTensors snapshot(const layers::Module& module) {
  NamedTensors state = module.state_dict();
  for (NamedTensor& entry : state) entry.tensor = entry.tensor.clone();
  return state;
}
void set(NamedTensors& state, const std::string& name, const Tensor& value) {
  for (NamedTensor& entry : state)
    if (entry.name == name) entry.tensor = value;
}
void check_equal(const NamedTensors& a, const NamedTensors& b) {
  REQUIRE(names_of(a) == names_of(b));
  for (std::size_t i = 0; i < a.size(); ++i) CHECK(values_of(a[i].tensor) == values_of(b[i].tensor));
}

}  // namespace

TEST_CASE("Module: parameters and buffers by path, own ones first") {
  Model model;
  const Names expected{"scale", "embed.token_embed.weight", "embed.pos_embed.weight", "head.weight", "head.bias"};
  CHECK(names_of(model.named_parameters()) == expected);
  CHECK(names_of(model.named_parameters("a.b"))[1] == "a.b.embed.token_embed.weight");
  CHECK(names_of(model.embed.named_parameters()) == Names{"token_embed.weight", "pos_embed.weight"});
  CHECK(names_of(model.named_buffers()) == Names{"table", "hidden"});
  CHECK(model.parameters().size() == 5);
  CHECK(model.num_parameters() == 1 + 24 + 32 + 24 + 6);
  CHECK(model.embed.pos_embed.weight.name() == "embed.pos_embed.weight");
  CHECK(model.named_parameters()[3].tensor.is(model.head.weight));
  for (const Tensor& parameter : model.parameters()) CHECK(parameter.requires_grad());
  CHECK(!model.table.requires_grad());

  const auto positions = [](std::string_view name) { return name.find("pos_embed") != name.npos; };
  CHECK(names_of(select(model.named_parameters(), positions)) == Names{"embed.pos_embed.weight"});
  CHECK(find(model.named_parameters(), "head.bias").is(model.head.bias));
  CHECK(!find(model.named_parameters(), "head.bia").defined());
}

TEST_CASE("Module: names are unique and have no dots") {
  struct Bad : layers::Module {
    Tensor weight = zeros({1});
    using Module::register_buffer;
    using Module::register_module;
    using Module::register_parameter;
  };
  Bad bad;
  layers::Dropout child;
  bad.register_parameter("weight", bad.weight);
  CHECK_THROWS_WITH_AS(bad.register_buffer("weight", bad.weight), "Module: two members are named weight", Error);
  CHECK_THROWS_AS(bad.register_module("weight", child), Error);
  CHECK_THROWS_WITH_AS(bad.register_module("a.b", child),
                       "Module: \"a.b\" is no name for a member; it must not be empty or have a dot", Error);
  CHECK_THROWS_AS(bad.register_parameter("", bad.weight), Error);
  CHECK(names_of(bad.named_parameters()) == Names{"weight"});
}

TEST_CASE("tied weights: one parameter, two keys") {
  Model model(true);
  const Names expected{"scale", "embed.token_embed.weight", "embed.pos_embed.weight", "head.bias"};
  CHECK(names_of(model.named_parameters()) == expected);
  CHECK(model.num_parameters() == 1 + 24 + 32 + 6);
  CHECK(model.head.weight.name() == "embed.token_embed.weight");
  const NamedTensors state = model.state_dict();
  CHECK(names_of(state) ==
        Names{"scale", "table", "embed.token_embed.weight", "embed.pos_embed.weight", "head.weight", "head.bias"});
  CHECK(&state[2].tensor.storage() == &state[4].tensor.storage());

  // A state dict of equal tied values loads; one that contradicts itself does not.
  NamedTensors other = snapshot(model);
  const Values sevens(24, 7.0), eights(24, 8.0);
  set(other, "embed.token_embed.weight", make(sevens, {6, 4}));
  CHECK_THROWS_WITH_AS(model.load_state_dict(other),
                       "load_state_dict: 6 of 6 keys matched; wrong: embed.token_embed.weight and head.weight are one "
                       "tensor here but differ",
                       Error);
  check_equal(model.state_dict(), state);
  set(other, "head.weight", make(sevens, {6, 4}));
  model.load_state_dict(other);
  CHECK(values_of(model.head.weight) == sevens);
  CHECK(model.head.weight.is(model.embed.token_embed.weight));

  // One step moves both, once.
  optim::SGD optimizer(model.named_parameters(), {.lr = 1.0});
  model.head.weight.set_gradient(make(Values(24, -1.0), {6, 4}));
  optimizer.step();
  CHECK(values_of(model.embed.token_embed.weight) == eights);
}

TEST_CASE("EMB-12: a tied table gets the sum of its row-sparse and its dense gradient") {
  for (const bool lookup_first : {true, false}) {
    layers::Embedding embed({.num_embeddings = 5, .embedding_dim = 2});
    layers::Linear head({.in_features = 2, .out_features = 5, .bias = false});
    head.weight = embed.weight;
    embed.weight.fill_(1.0);
    const Tensor ids = tensor<std::int64_t>({1, 1});
    for (int pass = 1; pass <= 2; ++pass) {
      Tape tape;
      // In the second form the projection is recorded first, so that its backward runs last.
      const Tensor loss =
          lookup_first ? sum(head(embed(ids))) : sum(linear(ones({2, 2}), head.weight)) + sum(embed(ids)) * 5.0;
      tape.backward(loss);
      const double f = pass;
      const Values expected{2 * f, 2 * f, 12 * f, 12 * f, 2 * f, 2 * f, 2 * f, 2 * f, 2 * f, 2 * f};
      CHECK(values_of(embed.weight.grad()) == expected);
      CHECK(embed.weight.gradient().is_dense());
    }
    optim::AdamW optimizer(embed.named_parameters());
    CHECK_NOTHROW(optimizer.step());
  }
}

TEST_CASE("train and eval reach all children; zero_grad removes all gradients") {
  Model model;
  CHECK(model.is_training());
  model.eval();
  CHECK(!model.embed.token_embed.is_training());
  CHECK(!model.head.is_training());
  model.head.train();
  CHECK(model.head.is_training());
  CHECK(!model.is_training());
  model.train();
  CHECK(model.embed.pos_embed.is_training());

  model.head.bias.set_gradient(ones({6}));
  model.zero_grad();
  CHECK(!model.head.bias.gradient().defined());
}

TEST_CASE("state_dict shares memory, load_state_dict copies into the same tensors") {
  Model a, b;
  const NamedTensors state = a.state_dict();
  CHECK(!state[2].tensor.requires_grad());
  const Tensor weight = b.embed.token_embed.weight;
  const layers::LoadResult result = b.load_state_dict(state);
  CHECK(result.missing.empty());
  CHECK(result.unexpected.empty());
  check_equal(b.state_dict(), state);
  CHECK(weight.is(b.embed.token_embed.weight));
  CHECK(weight.requires_grad());
  CHECK(&weight.storage() != &a.embed.token_embed.weight.storage());
  CHECK(&state[2].tensor.storage() == &a.embed.token_embed.weight.storage());
  a.load_state_dict(state);  // its own
  check_equal(a.state_dict(), b.state_dict());
}

TEST_CASE("POS-04: a checkpoint that does not match is refused as a whole") {
  Model model;
  const NamedTensors good = snapshot(model), before = good;
  const auto refused = [&](const NamedTensors& state, bool strict, const char* text) {
    CHECK_THROWS_WITH_AS(model.load_state_dict(state, {.strict = strict}), text, Error);
    check_equal(model.state_dict(), before);
  };
  // (a-c) position tables of another length; the one with a single row is not broadcast
  for (const std::int64_t rows : {16, 4, 1})
    for (const bool strict : {true, false}) {
      NamedTensors state = good;
      set(state, "embed.pos_embed.weight", zeros({rows, 4}));
      const std::string text = "load_state_dict: 6 of 6 keys matched; wrong: embed.pos_embed.weight is float32 [" +
                               std::to_string(rows) + ", 4], not float32 [8, 4]";
      refused(state, strict, text.c_str());
    }
  // (d) an extra buffer
  NamedTensors state = good;
  state.push_back({"embed.pos_embed.position_ids", arange(0, 8)});
  refused(state, true, "load_state_dict: 6 of 6 keys matched; unexpected: embed.pos_embed.position_ids");
  set(state, "head.bias", make(Values(6, 2.0), {6}));
  CHECK(model.load_state_dict(state, {.strict = false}).unexpected == Names{"embed.pos_embed.position_ids"});
  CHECK(values_of(model.head.bias) == Values(6, 2.0));
  model.load_state_dict(good);
  // (e) a prefix on every key
  state = good;
  for (NamedTensor& entry : state) entry.name = "model." + entry.name;
  refused(
      state, false,
      "load_state_dict: 0 of 6 keys matched; missing: scale, table, embed.token_embed.weight, embed.pos_embed.weight, "
      "head.weight, head.bias; unexpected: model.scale, model.table, model.embed.token_embed.weight, "
      "model.embed.pos_embed.weight, model.head.weight, model.head.bias");
  refused(
      {}, false,
      "load_state_dict: 0 of 6 keys matched; missing: scale, table, embed.token_embed.weight, embed.pos_embed.weight, "
      "head.weight, head.bias");
  // (f) one good, several wrong: all are listed, nothing is loaded
  state = {{"scale", make({3}, {1})},      {"table", zeros({2}, DType::float64)}, {"head.bias", Tensor()},
           {"head.weight", zeros({6, 4})}, {"head.weight", zeros({6, 4})},        {"extra", zeros({1})}};
  refused(
      state, true,
      "load_state_dict: 4 of 6 keys matched; missing: embed.token_embed.weight, embed.pos_embed.weight; unexpected: "
      "extra; wrong: table is float64 [2], not float32 [2], head.weight comes twice, head.bias is undefined");
  // Not strict: a part may be missing, and is reported.
  const layers::LoadResult result = model.load_state_dict({{"scale", make({3}, {1})}}, {.strict = false});
  CHECK(result.missing.size() == 5);
  CHECK(model.scale.item() == 3.0);
}

TEST_CASE("to: the same tensors on another backend, gradients included") {
  const std::string other = current_backend().name() == "odd" ? "reference" : "odd";
  std::string reason;
  REQUIRE_MESSAGE(backend_available(other, &reason), reason);
  Model model(true);
  const NamedTensors before = snapshot(model);
  const Tensor weight = model.head.weight;
  model.head.bias.set_gradient(make({1, 2, 3, 4, 5, 6}, {6}));
  model.to(other);
  CHECK(weight.is(model.head.weight));
  CHECK(weight.is(model.embed.token_embed.weight));
  CHECK(weight.backend().name() == other);
  CHECK(model.hidden.backend().name() == other);
  CHECK(model.head.bias.grad().backend().name() == other);
  CHECK(values_of(model.head.bias.grad()) == Values{1, 2, 3, 4, 5, 6});
  check_equal(model.state_dict(), before);
  model.load_state_dict(before);  // from the first backend
  CHECK(weight.backend().name() == other);
  const Tensor out = model.embed(tensor<std::int64_t>({1, 2}).to(other));
  CHECK(out.backend().name() == other);
  CHECK_THROWS_AS(model.to("nowhere"), BackendError);
  CHECK(weight.backend().name() == other);
  model.to(current_backend());
  check_equal(model.state_dict(), before);
}

TEST_CASE("load_state_dict of the module's own tensors under exchanged names exchanges their values") {
  struct Pair : layers::Module {
    Tensor a = full({2}, 1), b = full({2}, 2);
    Pair() {
      register_parameter("a", a);
      register_parameter("b", b);
    }
  } pair;
  pair.load_state_dict({{"a", pair.b.detach()}, {"b", pair.a.detach()}});
  CHECK(pair.a.to_vector<double>() == Values{2, 2});
  CHECK(pair.b.to_vector<double>() == Values{1, 1});
}
