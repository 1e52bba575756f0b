/// TransformerEmbedding: keys, position tables, lengths, offsets, position ids; a small training run.

#include <doctest/doctest.h>

#include <cmath>

#include "tensor_tools.hpp"
#include "wengert/gradient.hpp"
#include "wengert/layers.hpp"
#include "wengert/ops.hpp"
#include "wengert/optim.hpp"
#include "wengert/random.hpp"
#include "wengert/tape.hpp"

using namespace wengert;
using doctest::Approx;
using layers::PositionTable;
using layers::TransformerEmbedding;
using testing::Values;
using testing::values_of;

namespace {

using Ids = std::vector<std::int64_t>;

Tensor ids_of(const Ids& ids, const Shape& shape) { return tensor(ids, shape); }

/// Tokens 10 v, 10 v + 1, ...; positions p / 100.
TransformerEmbedding::Options small_options() {
  return {.vocab_size = 6, .max_seq_len = 8, .embed_dim = 2, .dropout = 0.0};
}
void fill(TransformerEmbedding& embed) {
  std::vector<float> tokens, positions;
  for (int v = 0; v < 6; ++v) tokens.insert(tokens.end(), {10.0F * v, 10.0F * v + 1.0F});
  for (int p = 0; p < embed.pos_embed.weight.size(0); ++p) positions.insert(positions.end(), {p / 64.0F, p / 64.0F});
  embed.load_state_dict({{"token_embed.weight", tensor(tokens, {6, 2})},
                         {"pos_embed.weight", tensor(positions, embed.pos_embed.weight.shape())}});
}

}  // namespace

TEST_CASE("TransformerEmbedding: keys, start and defaults") {
  manual_seed(3);
  TransformerEmbedding embed({.vocab_size = 300, .max_seq_len = 100, .embed_dim = 64, .padding_idx = 7});
  const NamedTensors state = embed.state_dict();
  REQUIRE(state.size() == 2);
  CHECK(state[0].name == "token_embed.weight");
  CHECK(state[0].tensor.shape() == Shape{300, 64});
  CHECK(state[1].name == "pos_embed.weight");
  CHECK(state[1].tensor.shape() == Shape{100, 64});
  CHECK(embed.dropout() == 0.1);
  for (const NamedTensor& entry : state) {
    double squares = 0.0;
    for (const double x : values_of(entry.tensor)) squares += x * x;
    CHECK(squares / static_cast<double>(entry.tensor.numel()) == Approx(1.0 / 64).epsilon(0.1));
  }
  const Values padding = values_of(slice(embed.token_embed.weight.detach(), 0, 7, 8));
  CHECK(padding == Values(64, 0.0));
  TransformerEmbedding narrow({.vocab_size = 30, .max_seq_len = 10, .embed_dim = 64, .init_std = 1e-3});
  for (const double x : values_of(narrow.pos_embed.weight)) CHECK(std::abs(x) < 1e-2);
}

TEST_CASE("TransformerEmbedding: token plus position, in the same bits as the parts") {
  manual_seed(4);
  TransformerEmbedding embed({.vocab_size = 20, .max_seq_len = 9, .embed_dim = 7, .dropout = 0.3, .padding_idx = 0});
  const Tensor ids = ids_of({3, 0, 19, 3, 5, 5}, {2, 3});
  manual_seed(5);
  Values fused, token_grad, position_grad;
  {
    Tape tape;
    const Tensor out = embed(ids, {.offset = 2});
    CHECK(out.shape() == Shape{2, 3, 7});
    tape.backward(sum(square(out)));
    fused = values_of(out);
    token_grad = values_of(embed.token_embed.weight.grad());
    position_grad = values_of(embed.pos_embed.weight.grad());
    CHECK(embed.token_embed.weight.gradient().is_rows());
    CHECK(embed.pos_embed.weight.gradient().is_rows());
  }
  embed.zero_grad();
  manual_seed(5);
  Tape tape;
  const Tensor positions = embedding(embed.pos_embed.weight, arange(2, 5));
  const Tensor out = dropout(add(embed.token_embed(ids), positions), 0.3);
  tape.backward(sum(square(out)));
  CHECK(values_of(out) == fused);
  CHECK(values_of(embed.token_embed.weight.grad()) == token_grad);
  CHECK(values_of(embed.pos_embed.weight.grad()) == position_grad);

  embed.eval();
  CHECK(values_of(embed(ids)) == values_of(embed(ids)));
  embed.set_dropout(1.0);
  embed.train();
  CHECK(values_of(embed(ids)) == Values(42, 0.0));
}

TEST_CASE("TransformerEmbedding: settings out of range are refused") {
  CHECK_THROWS_WITH_AS(TransformerEmbedding({.vocab_size = 2, .max_seq_len = 2, .embed_dim = 2, .dropout = 1.5}),
                       "TransformerEmbedding: dropout is 1.5; it must be in [0, 1]", ValueError);
  CHECK_THROWS_WITH_AS(TransformerEmbedding({.vocab_size = 2, .max_seq_len = 2, .embed_dim = 2, .position_offset = -1}),
                       "TransformerEmbedding: position_offset is -1; it must not be negative", ValueError);
  CHECK_THROWS_WITH_AS(TransformerEmbedding({.vocab_size = 2, .max_seq_len = 2, .embed_dim = 2, .init_std = -0.5}),
                       "TransformerEmbedding: init_std is -0.5; it must not be negative", ValueError);
  CHECK_THROWS_AS(TransformerEmbedding({.vocab_size = 2, .max_seq_len = 2, .embed_dim = 2, .padding_idx = 2}),
                  IndexError);
  CHECK_THROWS_WITH_AS(TransformerEmbedding({.vocab_size = -2, .max_seq_len = 2, .embed_dim = 2}),
                       "TransformerEmbedding: vocab_size is -2; it must not be negative", ValueError);
  TransformerEmbedding embed(small_options());
  CHECK_THROWS_AS(embed.set_dropout(-0.5), ValueError);
  CHECK(embed.dropout() == 0.0);
  CHECK_THROWS_WITH_AS(embed(ids_of({1}, {1, 1, 1})),
                       "TransformerEmbedding: ids must have shape (T) or (B, T), got [1, 1, 1]", ShapeError);
  CHECK_THROWS_AS(embed(ids_of({6}, {1})), IndexError);
  CHECK_THROWS_AS(embed(zeros({2})), DTypeError);
}

TEST_CASE("position tables: learned, sinusoidal, frozen, none") {
  TransformerEmbedding::Options options = small_options();
  const Tensor ids = ids_of({1, 2, 3}, {3});

  options.positions = PositionTable::sinusoidal;
  TransformerEmbedding waves(options);
  CHECK(waves.named_parameters().size() == 1);
  CHECK(waves.named_buffers().size() == 1);
  CHECK(waves.named_buffers()[0].name == "pos_embed.weight");
  CHECK(waves.state_dict().size() == 1);  // the table is computed, not stored
  const Values sum_of_both = values_of(waves(ids)), token = values_of(waves.token_embed(ids));
  for (int p = 0; p < 3; ++p) {
    CHECK(sum_of_both[2 * p] - token[2 * p] == Approx(std::sin(p)).epsilon(1e-5));
    CHECK(sum_of_both[2 * p + 1] - token[2 * p + 1] == Approx(std::cos(p)).epsilon(1e-5));
  }

  options.positions = PositionTable::frozen;
  TransformerEmbedding frozen(options);
  CHECK(frozen.state_dict().size() == 2);
  CHECK(!frozen.pos_embed.weight.requires_grad());
  const Values before = values_of(frozen.pos_embed.weight);
  optim::AdamW optimizer(frozen.named_parameters(), {.lr = 0.1});
  {
    Tape tape;
    tape.backward(sum(square(frozen(ids))));
  }
  optimizer.step();
  CHECK(values_of(frozen.pos_embed.weight) == before);

  options.positions = PositionTable::none;
  TransformerEmbedding none(options);
  CHECK(none.state_dict().size() == 1);
  CHECK(!none.pos_embed.weight.defined());
  CHECK(values_of(none(ids, {.offset = 100})) == values_of(none.token_embed(ids)));
  CHECK(none(zeros({2, 50}, DType::int64)).shape() == Shape{2, 50, 2});
}

TEST_CASE("sinusoidal_table: the formula of the paper") {
  const Tensor table = layers::sinusoidal_table(50, 7, DType::float64);
  const Values values = values_of(table);
  for (int p = 0; p < 50; ++p)
    for (int i = 0; i < 4; ++i) {
      const double angle = p / std::pow(10000.0, 2.0 * i / 7.0);
      CHECK(values[static_cast<std::size_t>(7 * p + 2 * i)] == Approx(std::sin(angle)).epsilon(1e-13));
      if (2 * i + 1 < 7)
        CHECK(values[static_cast<std::size_t>(7 * p + 2 * i + 1)] == Approx(std::cos(angle)).epsilon(1e-13));
    }
  CHECK(layers::sinusoidal_table(3, 4).dtype() == DType::float32);
}

TEST_CASE("POS-01: offset and length against the maximum") {
  for (const PositionTable positions : {PositionTable::learned, PositionTable::sinusoidal, PositionTable::frozen}) {
    TransformerEmbedding::Options options = small_options();
    options.positions = positions;
    TransformerEmbedding embed(options);
    const auto of_length = [](std::int64_t length) { return zeros({length}, DType::int64); };
    CHECK_THROWS_WITH_AS(embed(of_length(9)), "TransformerEmbedding: offset 0 + length 9 exceeds max_seq_len 8",
                         IndexError);
    CHECK_THROWS_WITH_AS(embed(of_length(1), {.offset = 8}),
                         "TransformerEmbedding: offset 8 + length 1 exceeds max_seq_len 8", IndexError);
    CHECK_THROWS_WITH_AS(embed(of_length(2), {.offset = 7}),
                         "TransformerEmbedding: offset 7 + length 2 exceeds max_seq_len 8", IndexError);
    CHECK_THROWS_WITH_AS(embed(of_length(0), {.offset = INT64_MAX}),
                         "TransformerEmbedding: offset 9223372036854775807 + length 0 exceeds max_seq_len 8",
                         IndexError);
    CHECK_THROWS_WITH_AS(embed(of_length(1), {.offset = -1}), "TransformerEmbedding: offset -1 is negative",
                         IndexError);
    CHECK(embed(of_length(8)).shape() == Shape{8, 2});
    CHECK(embed(of_length(1), {.offset = 7}).shape() == Shape{1, 2});
    CHECK(embed(of_length(0)).shape() == Shape{0, 2});
    CHECK(embed(zeros({2, 0}, DType::int64)).shape() == Shape{2, 0, 2});
  }
}

TEST_CASE("POS-01: an offset continues where the first part ended") {
  TransformerEmbedding embed(small_options());
  fill(embed);
  const Values whole = values_of(embed(ids_of({1, 2, 3, 4}, {4})));
  const Values end = values_of(embed(ids_of({3, 4}, {2}), {.offset = 2}));
  CHECK(Values(whole.begin() + 4, whole.end()) == end);
}

TEST_CASE("POS-02: tables with rows in front of position 0") {
  TransformerEmbedding embed(
      {.vocab_size = 6, .max_seq_len = 8, .embed_dim = 2, .dropout = 0.0, .padding_idx = 1, .position_offset = 2});
  CHECK(embed.pos_embed.weight.shape() == Shape{10, 2});
  CHECK(embed.max_seq_len() == 8);
  fill(embed);
  const Values first = values_of(embed(ids_of({5, 5}, {2})));
  CHECK(first == Values{50 + 2 / 64.0, 51 + 2 / 64.0, 50 + 3 / 64.0, 51 + 3 / 64.0});
  CHECK(embed(ids_of(Ids(8, 5), {8})).shape() == Shape{8, 2});
  CHECK_THROWS_WITH_AS(embed(ids_of(Ids(9, 5), {9})), "TransformerEmbedding: offset 0 + length 9 exceeds max_seq_len 8",
                       IndexError);

  const Tensor padded = ids_of({5, 5, 1, 1, 1, 5, 1, 5}, {2, 4});
  const Tensor places = layers::position_ids_from_padding(padded, 1);
  CHECK(places.shape() == Shape{2, 4});
  CHECK(places.to_vector<std::int64_t>() == Ids{2, 3, 1, 1, 1, 2, 1, 3});
  CHECK(layers::position_ids_from_padding(padded.to(DType::int32), 1).to_vector<std::int64_t>() ==
        Ids{2, 3, 1, 1, 1, 2, 1, 3});
  const Values out = values_of(embed(padded, {.position_ids = places}));
  CHECK(out[0] == 50 + 2 / 64.0);
  CHECK(out[4] == 10 + 1 / 64.0);
  CHECK(out[14] == 50 + 3 / 64.0);
  // Eight tokens fit, nine do not, by either way of counting.
  const auto by_padding = [&](std::int64_t n) {
    const Tensor ids = ids_of(Ids(static_cast<std::size_t>(n), 5), {n});
    return embed(ids, {.position_ids = layers::position_ids_from_padding(ids, 1)});
  };
  CHECK(by_padding(8).shape() == Shape{8, 2});
  CHECK_THROWS_WITH_AS(by_padding(9), "embed_dropout: position id 10 at [8] is outside [0, 10)", IndexError);
  // A table for another way of counting does not load by accident.
  TransformerEmbedding plain({.vocab_size = 6, .max_seq_len = 8, .embed_dim = 2});
  CHECK_THROWS_WITH_AS(
      plain.load_state_dict(embed.state_dict()),
      "load_state_dict: 2 of 2 keys matched; wrong: pos_embed.weight is float32 [10, 2], not float32 [8, 2]", Error);
  CHECK_THROWS_AS(layers::position_ids_from_padding(padded, -1), IndexError);
  CHECK_THROWS_AS(layers::position_ids_from_padding(zeros({2}), 1), DTypeError);
  CHECK(layers::position_ids_from_padding(zeros({2, 0}, DType::int64), 1).shape() == Shape{2, 0});
}

TEST_CASE("POS-03: padding on the left does not shift positions when position ids say so") {
  TransformerEmbedding embed(small_options());
  fill(embed);
  const Tensor mask = ids_of({0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0}, {3, 5});
  const Tensor places = layers::position_ids_from_mask(mask);
  CHECK(places.to_vector<std::int64_t>() == Ids{0, 0, 0, 1, 2, 0, 1, 2, 3, 4, 0, 0, 0, 0, 0});

  const Tensor left = ids_of({0, 0, 1, 2, 3}, {1, 5});
  const Values padded = values_of(embed(left, {.position_ids = slice(places, 0, 0, 1)}));
  const Values plain = values_of(embed(ids_of({1, 2, 3}, {1, 3})));
  CHECK(Values(padded.begin() + 4, padded.end()) == plain);

  // Position ids win over the offset, and -1 is refused.
  const Tensor explicit_ids = ids_of({0, 0, 0, 1, 2}, {5});
  CHECK(values_of(embed(left, {.position_ids = explicit_ids, .offset = 3})) == padded);
  CHECK_THROWS_WITH_AS(embed(left, {.position_ids = ids_of({0, -1, 0, 1, 2}, {5})}),
                       "embed_dropout: position id -1 at [1] is outside [0, 8)", IndexError);
  CHECK_THROWS_AS(embed(left, {.position_ids = ids_of({0, 1}, {2})}), ShapeError);

  // (T) and (B, T) of equal content: the same gradient.
  const Tensor batch = ids_of({1, 2, 3, 1, 2, 3}, {2, 3});
  const auto gradients = [&](const Tensor& position_ids) {
    embed.zero_grad();
    Tape tape;
    tape.backward(sum(square(embed(batch, {.position_ids = position_ids}))));
    return std::pair(values_of(embed.pos_embed.weight.grad()), values_of(embed.token_embed.weight.grad()));
  };
  CHECK(gradients(ids_of({4, 0, 4}, {3})) == gradients(ids_of({4, 0, 4, 4, 0, 4}, {2, 3})));
}

TEST_CASE("a small model learns where its tokens stand, and cannot without positions") {
  const auto train = [](PositionTable positions) {
    manual_seed(11);
    constexpr std::int64_t length = 8, batch = 4;
    TransformerEmbedding embed(
        {.vocab_size = 3, .max_seq_len = length, .embed_dim = 16, .dropout = 0.1, .positions = positions});
    layers::Linear head({.in_features = 16, .out_features = length});
    optim::AdamW optimizer(
        {{.parameters = embed.named_parameters("embed")}, {.parameters = head.named_parameters("head")}}, {.lr = 0.03});
    Ids places;
    for (std::int64_t i = 0; i < batch * length; ++i) places.push_back(i % length);
    const Tensor labels = ids_of(places, {batch, length});
    double loss = 0.0;
    for (int step = 0; step < 150; ++step) {
      const Tensor ids = randint(0, 3, {batch, length});
      Tape tape;
      const Tensor value = cross_entropy(head(embed(ids)), labels);
      tape.backward(value);
      optim::clip_grad_norm(optimizer, 1.0);
      optimizer.step();
      optimizer.zero_grad();
      loss = value.item();
    }
    return loss;
  };
  CHECK(train(PositionTable::learned) < 0.1);
  CHECK(train(PositionTable::none) > 1.9);  // log(8) = 2.08
}
