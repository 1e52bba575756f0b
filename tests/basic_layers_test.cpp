/// Embedding, Dropout, Linear.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tensor_tools.hpp"
#include "wengert/gradient.hpp"
#include "wengert/layers.hpp"
#include "wengert/ops.hpp"
#include "wengert/optim.hpp"
#include "wengert/random.hpp"
#include "wengert/tape.hpp"

using namespace wengert;
using doctest::Approx;
using testing::make;
using testing::Names;
using testing::names_of;
using testing::Values;
using testing::values_of;

TEST_CASE("Embedding starts N(0, 1), or as told") {
  manual_seed(1);
  layers::Embedding embed({.num_embeddings = 200, .embedding_dim = 50});
  const auto spread = [](const Tensor& tensor) {
    double total = 0.0, squares = 0.0;
    for (const double x : values_of(tensor)) total += x, squares += x * x;
    const double n = static_cast<double>(tensor.numel());
    CHECK(std::abs(total / n) < 5.0 * std::sqrt(squares / n / n));
    return std::sqrt(squares / n);
  };
  CHECK(spread(embed.weight) == Approx(1.0).epsilon(0.05));
  CHECK(spread(layers::Embedding({.num_embeddings = 200, .embedding_dim = 50, .init_std = 0.02}).weight) ==
        Approx(0.02).epsilon(0.05));
  manual_seed(1);
  CHECK(values_of(layers::Embedding({.num_embeddings = 200, .embedding_dim = 50}).weight) == values_of(embed.weight));
  CHECK_THROWS_WITH_AS(layers::Embedding({.num_embeddings = 3, .embedding_dim = 2, .init_std = -1.0}),
                       "Embedding: init_std is -1; it must not be negative", ValueError);
}

TEST_CASE("EMB-08: what the padding row contains") {
  // (a) fresh: zeros, and only there
  layers::Embedding fresh({.num_embeddings = 3, .embedding_dim = 2, .padding_idx = 1});
  Values values = values_of(fresh.weight);
  CHECK(values[2] == 0.0);
  CHECK(values[3] == 0.0);
  CHECK(values[1] != 0.0);
  CHECK(values[4] != 0.0);
  // (b) an initialiser of one's own, (d) a loaded value: kept
  normal_(fresh.weight);
  CHECK(values_of(fresh.weight)[2] != 0.0);
  fresh.load_state_dict({{"weight", make({1, 2, 3, 4, 5, 6}, {3, 2})}});
  CHECK(values_of(fresh(tensor<std::int64_t>({1}))) == Values{3, 4});
  // (c) from_pretrained
  const Tensor table = make({1, 2, 3, 4, 5, 6}, {3, 2});
  layers::Embedding pretrained = layers::Embedding::from_pretrained(table, {.freeze = false, .padding_idx = 0});
  CHECK(values_of(pretrained.weight) == Values{1, 2, 3, 4, 5, 6});
  CHECK(values_of(pretrained(tensor<std::int32_t>({0, 2}))) == Values{1, 2, 5, 6});
  CHECK(pretrained.padding_idx() == 0);
  // (e) a step leaves it
  for (const optim::RowUpdate rows : {optim::RowUpdate::dense, optim::RowUpdate::lazy}) {
    layers::Embedding embed = layers::Embedding::from_pretrained(table.clone(), {.freeze = false, .padding_idx = 0});
    optim::SGD optimizer(embed.named_parameters(), {.lr = 1.0, .rows = rows});
    Tape tape;
    tape.backward(sum(embed(tensor<std::int64_t>({0, 2, 0}))));
    CHECK(values_of(embed.weight.grad()) == Values{0, 0, 0, 0, 1, 1});
    optimizer.step();
    CHECK(values_of(embed.weight) == Values{1, 2, 3, 4, 4, 5});
  }
  CHECK_THROWS_WITH_AS(layers::Embedding({.num_embeddings = 3, .embedding_dim = 2, .padding_idx = 3}),
                       "Embedding: padding_idx 3 is outside [0, 3)", IndexError);
  CHECK_THROWS_AS(layers::Embedding::from_pretrained(table, {.padding_idx = -1}), IndexError);
}

TEST_CASE("Embedding::from_pretrained shares the table and freezes it unless told otherwise") {
  Tensor table = make({1, 2, 3, 4}, {2, 2});
  layers::Embedding frozen = layers::Embedding::from_pretrained(table);
  CHECK(!frozen.weight.requires_grad());
  CHECK(names_of(frozen.named_parameters()) == Names{"weight"});
  table.fill_(5.0);
  CHECK(values_of(frozen.weight) == Values(4, 5.0));
  CHECK(layers::Embedding::from_pretrained(table, {.freeze = false}).weight.requires_grad());
  CHECK(!table.requires_grad());
  optim::AdamW optimizer(frozen.named_parameters(), {.lr = 1.0});
  optimizer.step();
  CHECK(values_of(frozen.weight) == Values(4, 5.0));
  CHECK_THROWS_WITH_AS(layers::Embedding::from_pretrained(zeros({3})),
                       "Embedding: a table must have shape (rows, d), got [3]", ShapeError);
}

TEST_CASE("Linear starts uniform within 1 / sqrt(in_features), and maps the last axis") {
  layers::Linear big({.in_features = 100, .out_features = 300});
  double largest = 0.0, total = 0.0;
  for (const double x : values_of(big.weight)) largest = std::max(largest, std::abs(x)), total += x * x;
  CHECK(largest <= 0.1);
  CHECK(largest > 0.0999);
  CHECK(total / 30000 == Approx(0.01 / 3).epsilon(0.03));
  for (const double x : values_of(big.bias)) CHECK(std::abs(x) <= 0.1);

  layers::Linear small({.in_features = 2, .out_features = 1});
  small.load_state_dict({{"weight", make({2, 3}, {1, 2})}, {"bias", make({10}, {1})}});
  const Tensor out = small(make({1, 1, 0, 1}, {2, 1, 2}));
  CHECK(out.shape() == Shape{2, 1, 1});
  CHECK(values_of(out) == Values{15, 13});
  layers::Linear plain({.in_features = 2, .out_features = 3, .bias = false});
  CHECK(names_of(plain.named_parameters()) == Names{"weight"});
  CHECK(layers::Linear({.in_features = 2, .out_features = 3, .dtype = DType::float64}).bias.dtype() == DType::float64);
  CHECK(values_of(layers::Linear({.in_features = 0, .out_features = 2}).bias) == Values{0, 0});
}

TEST_CASE("Dropout: p is checked, drops in training, passes in evaluation") {
  const double nan = std::nan("");
  CHECK_THROWS_WITH_AS(layers::Dropout(1.5), "Dropout: p is 1.5; it must be in [0, 1]", ValueError);
  CHECK_THROWS_WITH_AS(layers::Dropout(-0.1), "Dropout: p is -0.1; it must be in [0, 1]", ValueError);
  CHECK_THROWS_AS(layers::Dropout{nan}, ValueError);
  layers::Dropout drop(0.1);
  CHECK_THROWS_AS(drop.set_p(-1.0), ValueError);
  CHECK(drop.p() == 0.1);
  const Tensor x = ones({10000});
  const auto dropped = [](const Tensor& y) {
    const Values v = values_of(y);
    return std::count(v.begin(), v.end(), 0.0);
  };
  CHECK(dropped(drop(x)) > 850);
  CHECK(dropped(drop(x)) < 1150);
  drop.set_p(0.9);
  CHECK(dropped(drop(x)) > 8850);
  drop.eval();
  CHECK(values_of(drop(x)) == Values(10000, 1.0));
  CHECK(layers::Dropout().p() == 0.5);
}

TEST_CASE("settings that make no table are refused") {
  using layers::Embedding, layers::Linear, layers::PositionEmbedding, layers::PositionTable,
      layers::TransformerEmbedding;
  // A size that is left out is named; 0 is a size.
  CHECK_THROWS_WITH_AS(Linear({}), "Linear: in_features is not given", ValueError);
  CHECK_THROWS_WITH_AS(Linear({.in_features = 2}), "Linear: out_features is not given", ValueError);
  CHECK_THROWS_WITH_AS(Linear({.in_features = 2, .out_features = -1}),
                       "Linear: out_features is -1; it must not be negative", ValueError);
  CHECK(Linear({.in_features = 0, .out_features = 3}).forward(zeros({2, 0})).shape() == Shape{2, 3});
  CHECK_THROWS_WITH_AS(Embedding({}), "Embedding: num_embeddings is not given", ValueError);
  CHECK_THROWS_WITH_AS(Embedding({.num_embeddings = 2}), "Embedding: embedding_dim is not given", ValueError);
  CHECK(Embedding({.num_embeddings = 0, .embedding_dim = 2}).weight.shape() == Shape{0, 2});
  CHECK_THROWS_WITH_AS(PositionEmbedding({.embed_dim = 2}), "PositionEmbedding: rows is not given", ValueError);
  CHECK_THROWS_WITH_AS(TransformerEmbedding({}), "TransformerEmbedding: vocab_size is not given", ValueError);
  CHECK_THROWS_WITH_AS(TransformerEmbedding({.vocab_size = 4, .max_seq_len = 4}),
                       "TransformerEmbedding: embed_dim is not given", ValueError);
  CHECK_THROWS_WITH_AS(TransformerEmbedding({.vocab_size = 4, .embed_dim = 4}),
                       "TransformerEmbedding: max_seq_len is not given", ValueError);
  const TransformerEmbedding endless({.vocab_size = 4, .embed_dim = 4, .positions = PositionTable::none});
  CHECK(endless(zeros({9}, DType::int64)).shape() == Shape{9, 4});
  CHECK_THROWS_AS(TransformerEmbedding({.vocab_size = 4, .max_seq_len = -1, .embed_dim = 2, .position_offset = 2}),
                  ValueError);
  CHECK_THROWS_AS(
      TransformerEmbedding({.vocab_size = 4, .max_seq_len = INT64_MAX, .embed_dim = 2, .position_offset = 2}),
      ValueError);
  CHECK_THROWS_AS(layers::Embedding::from_pretrained(zeros({3, 2}, DType::int64)), DTypeError);
  layers::Linear layer({.in_features = 2, .out_features = 2});
  optim::SGD optimizer(layer.named_parameters());
  CHECK_THROWS_AS(optimizer.lr(1), IndexError);
  CHECK_THROWS_AS(optimizer.set_lr(0.1, 7), IndexError);
}
