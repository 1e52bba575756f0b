// Cases from public bug reports: embedding lookup and positions. The ids are those of the collection.

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "cases.hpp"
#include "wengert/gradcheck.hpp"
#include "wengert/gradient.hpp"
#include "wengert/kernels.hpp"
#include "wengert/tape.hpp"

using namespace wengert;

namespace {

using Floats = std::vector<float>;
using Longs = std::vector<std::int64_t>;

Tensor table(const Shape& shape, std::uint64_t seed = 1) {
  return tensor(cases::make_values(cases::Values::normal, shape.numel(), seed), shape)
      .to(DType::float32)
      .set_requires_grad();
}

}  // namespace

TEST_CASE("EMB-01: a bad id is named, with its place and the valid range, and nothing else happens") {
  const Tensor weight = table({6, 4});
  struct Bad {
    std::int64_t id;
    const char* text;
  };
  const Bad bad[] = {
      {6, "embedding: id 6 at [0, 1] is outside [0, 6)"},
      {-1, "embedding: id -1 at [0, 1] is outside [0, 6)"},
      {std::numeric_limits<std::int64_t>::min(), "embedding: id -9223372036854775808 at [0, 1] is outside [0, 6)"},
      {std::int64_t{1} << 40, "embedding: id 1099511627776 at [0, 1] is outside [0, 6)"},
  };
  for (const Bad& one : bad) {
    const Tensor ids = tensor<std::int64_t>({{0, one.id}});
    CHECK_THROWS_WITH_AS(embedding(weight, ids), one.text, IndexError);
    Tape tape;
    CHECK_THROWS_WITH_AS(embedding(weight, ids), one.text, IndexError);  // also when the range is known already
    CHECK(tape.size() == 0);
    CHECK(embedding(weight, tensor<std::int64_t>({{0, 5}})).shape() == Shape{1, 2, 4});  // the next calls work
    CHECK(exp(zeros({3})).to_vector<float>() == Floats{1, 1, 1});
  }
  CHECK_THROWS_WITH_AS(embedding(weight, tensor<std::int32_t>({{1, 2}, {3, 17}})),
                       "embedding: id 17 at [1, 1] is outside [0, 6)", IndexError);
  CHECK_THROWS_WITH_AS(embedding(weight, tensor(Longs{9}, {})), "embedding: id 9 at [] is outside [0, 6)", IndexError);
}

TEST_CASE("EMB-01: ids that change after a good lookup are checked again") {
  const Tensor weight = table({6, 4});
  Tensor ids = tensor<std::int64_t>({0, 5});
  embedding(weight, ids);
  ids.copy_(tensor<std::int64_t>({0, 6}));
  CHECK_THROWS_WITH_AS(embedding(weight, ids), "embedding: id 6 at [1] is outside [0, 6)", IndexError);
  ids.copy_(tensor<std::int64_t>({0, 1}));
  CHECK(embedding(weight, ids).shape() == Shape{2, 4});
  // The same ids against a smaller table.
  CHECK_THROWS_WITH_AS(embedding(table({1, 4}), ids), "embedding: id 1 at [1] is outside [0, 1)", IndexError);
  if (!ids.storage().memory().host_visible()) return;
  // Through a pointer obtained before the lookup, which no version can tell.
  const std::span<std::int64_t> values = ids.mutable_data<std::int64_t>();
  embedding(weight, ids);
  values[1] = 1 << 20;
  CHECK_THROWS_WITH_AS(embedding(weight, ids), "embedding: id 1048576 at [1] is outside [0, 6)", IndexError);
}

TEST_CASE("EMB-01: the recorded lookup keeps its own ids") {
  const Tensor weight = table({6, 1});
  Tensor ids = tensor<std::int64_t>({2, 2});
  Tape tape;
  const Tensor x = embedding(weight, ids);
  ids.copy_(tensor<std::int64_t>({100, -7}));
  tape.backward(sum(x));
  CHECK(weight.grad().to_vector<float>() == Floats{0, 0, 2, 0, 0, 0});
}

TEST_CASE("EMB-04: zero-sized tables and ids") {
  const auto run = [](const Tensor& weight, const Tensor& ids, const Shape& shape) {
    Tape tape;
    const Tensor x = embedding(weight, ids);
    CHECK(x.shape() == shape);
    tape.backward(sum(x));
    CHECK(weight.grad().shape() == weight.shape());
    for (const float value : weight.grad().to_vector<float>()) CHECK(value == 0.0F);
    CHECK(exp(zeros({1})).item() == 1.0);  // later calls are unaffected
  };
  run(table({10, 0}), tensor<std::int64_t>({0, 3}), {2, 0});
  run(table({10, 4}), zeros({0}, DType::int64), {0, 4});
  run(table({10, 4}), zeros({2, 0}, DType::int64), {2, 0, 4});
  run(table({0, 4}), zeros({0}, DType::int64), {0, 4});
  CHECK_THROWS_WITH_AS(embedding(table({0, 4}), tensor<std::int64_t>({0})), "embedding: id 0 at [0] is outside [0, 0)",
                       IndexError);
  // Only padding: a gradient without rows.
  const Tensor weight = table({3, 2});
  Tape tape;
  tape.backward(sum(embedding(weight, tensor<std::int64_t>({0, 0}), {.padding_idx = 0})));
  CHECK(weight.gradient().is_rows());
  CHECK(weight.gradient().rows().count() == 0);
  CHECK(weight.grad().to_vector<float>() == Floats{0, 0, 0, 0, 0, 0});
}

TEST_CASE("EMB-05: 200,000 repeats of one id add up, and two runs give the same bits") {
  const std::int64_t count = 200'000;
  const Tensor ids = full({count}, 3, DType::int64);
  const Tensor upstream = full({count, 1}, 0.1F);
  Floats sums;
  for (int run = 0; run < 2; ++run) {
    const Tensor weight = zeros({8, 1}).set_requires_grad();
    Tape tape;
    tape.backward(embedding(weight, ids), {.seed = upstream});
    CHECK(weight.gradient().rows().count() == 1);
    const Floats grad = weight.grad().to_vector<float>();
    CHECK(std::abs(grad[3] / (static_cast<double>(count) * 0.1F) - 1.0) < 1e-6);
    CHECK(grad[0] == 0.0F);
    sums.push_back(grad[3]);
  }
  CHECK(sums[0] == sums[1]);
}

TEST_CASE("EMB-06: int32 and int64 ids give the same results and gradients; floating ids are refused by name") {
  Floats results[2], grads[2];
  for (const bool wide : {false, true}) {
    const Tensor weight = table({5, 7});
    const Tensor ids = tensor<std::int64_t>({{4, 0, 4}, {1, 1, 4}});
    Tape tape;
    const Tensor x = embedding(weight, wide ? ids : ids.to(DType::int32));
    tape.backward(sum(square(x)));
    results[wide] = x.to_vector<float>();
    grads[wide] = weight.grad().to_vector<float>();
  }
  CHECK(results[0] == results[1]);
  CHECK(grads[0] == grads[1]);
  for (const DType type : {DType::float32, DType::float64}) {
    const std::string text = std::string("embedding: ids must be int32 or int64, got ") + name_of(type);
    CHECK_THROWS_WITH_AS(embedding(table({5, 7}), zeros({2}, type)), text.c_str(), DTypeError);
  }
  // Ids above 2^24 keep their value: neighbours are not merged on the way to the check.
  CHECK_THROWS_WITH_AS(embedding(table({5, 7}), tensor<std::int32_t>({16777217})),
                       "embedding: id 16777217 at [0] is outside [0, 5)", IndexError);
  CHECK_THROWS_WITH_AS(embedding(table({5, 7}), tensor<std::int64_t>({20000001})),
                       "embedding: id 20000001 at [0] is outside [0, 5)", IndexError);
}

TEST_CASE("EMB-08: the padding row is looked up like any other, and its gradient is exactly zero") {
  const Tensor weight = tensor<float>({{7, 8}, {1, 2}, {3, 4}}).set_requires_grad();
  const Tensor ids = tensor<std::int64_t>({0, 2, 0, 1});
  {
    Tape tape;
    const Tensor x = embedding(weight, ids, {.padding_idx = 0});
    CHECK(x.to_vector<float>() == Floats{7, 8, 3, 4, 7, 8, 1, 2});
    tape.backward(sum(x));
  }
  CHECK(weight.gradient().rows().ids.to_vector<std::int64_t>() == Longs{1, 2});
  CHECK(weight.grad().to_vector<float>() == Floats{0, 0, 1, 1, 1, 1});
  // Where the gradient becomes dense (the table is not a leaf) the rule is the same.
  const Tensor raw = tensor<float>({{7, 8}, {1, 2}, {3, 4}}).set_requires_grad();
  Tape tape;
  tape.backward(sum(embedding(raw * 1.0, ids, {.padding_idx = 0})));
  CHECK(raw.grad().to_vector<float>() == Floats{0, 0, 1, 1, 1, 1});
}

TEST_CASE("EMB-08: finite differences disagree on the padding row alone") {
  const Tensor weight = tensor<double>({{0, 0}, {1, 2}, {3, 4}}).set_requires_grad();
  const Tensor ids = tensor<std::int64_t>({0, 2, 0, 1});
  const auto f = [&](const std::vector<Tensor>& in) { return embedding(in[0], ids, {.padding_idx = 0}); };
  CHECK_FALSE(gradcheck(f, {weight}));
  GradcheckOptions options;
  options.skip = [](std::size_t, std::int64_t e) { return e < 2; };
  CHECK(gradcheck(f, {weight}, options));
}

TEST_CASE("EMB-12: a table used for lookup and for the output has the dense gradient, in any order") {
  for (const bool lookup_first : {true, false}) {
    CAPTURE(lookup_first);
    const Tensor weight = ones({5, 2}).set_requires_grad();
    const Tensor ids = tensor<std::int64_t>({1, 1});
    for (int pass = 1; pass <= 2; ++pass) {
      Tape tape;
      Tensor loss;
      if (lookup_first) {
        loss = sum(matmul(embedding(weight, ids), transpose(weight, 0, 1)));
      } else {
        const Tensor head = transpose(weight, 0, 1);
        loss = sum(matmul(embedding(weight, ids), head));
      }
      tape.backward(loss);
      CHECK(weight.gradient().is_dense());
      const auto n = static_cast<float>(pass);
      CHECK(weight.grad().to_vector<float>() ==
            Floats{2 * n, 2 * n, 12 * n, 12 * n, 2 * n, 2 * n, 2 * n, 2 * n, 2 * n, 2 * n});
    }
  }
  // The two uses as two losses: rows meet a dense gradient, and the other way round.
  for (const bool rows_first : {true, false}) {
    const Tensor weight = ones({5, 2}).set_requires_grad();
    const auto lookup = [&] {
      Tape tape;
      tape.backward(sum(embedding(weight, tensor<std::int64_t>({1, 1}))));
    };
    const auto project = [&] {
      Tape tape;
      tape.backward(sum(linear(ones({3, 2}), weight)));
    };
    if (rows_first) lookup();
    project();
    if (!rows_first) lookup();
    CHECK(weight.grad().to_vector<float>() == Floats{3, 3, 5, 5, 3, 3, 3, 3, 3, 3});
  }
}

TEST_CASE("POS-01: offset + length against the table, checked before the lookup") {
  const Tensor tokens = table({4, 2}), positions = table({8, 2}, 2);
  const auto run = [&](std::int64_t length, std::int64_t offset) {
    return embed_dropout(tokens, positions, zeros({2, length}, DType::int64), {.offset = offset});
  };
  CHECK_THROWS_WITH_AS(run(9, 0), "embed_dropout: offset 0 + length 9 = 9 exceeds the 8 positions of the table",
                       IndexError);
  CHECK_THROWS_WITH_AS(run(1, 8), "embed_dropout: offset 8 + length 1 = 9 exceeds the 8 positions of the table",
                       IndexError);
  CHECK_THROWS_WITH_AS(run(2, 7), "embed_dropout: offset 7 + length 2 = 9 exceeds the 8 positions of the table",
                       IndexError);
  CHECK_THROWS_WITH_AS(
      run(1, std::numeric_limits<std::int64_t>::max()),
      "embed_dropout: offset 9223372036854775807 + length 1 = 9223372036854775808 exceeds the 8 positions of the table",
      IndexError);
  CHECK_THROWS_WITH_AS(run(1, -1), "embed_dropout: offset -1 is negative", IndexError);
  CHECK(run(8, 0).shape() == Shape{2, 8, 2});
  CHECK(run(0, 0).shape() == Shape{2, 0, 2});
  CHECK(run(0, 8).shape() == Shape{2, 0, 2});
  CHECK(run(1, 7).shape() == Shape{2, 1, 2});
}

TEST_CASE("POS-03: explicit positions make left padding harmless") {
  const Tensor tokens = table({9, 3}), positions = table({5, 3}, 2);
  const std::int64_t pad = 0, a = 3, b = 7, c = 4;
  const Tensor padded = tensor(Longs{pad, pad, a, b, c, a, a, a, a, a}, {2, 5});
  const Tensor places = tensor(Longs{0, 0, 0, 1, 2, 0, 1, 2, 3, 4}, {2, 5});
  const Floats alone = embed_dropout(tokens, positions, tensor(Longs{a, b, c}, {1, 3})).to_vector<float>();
  const Tensor row =
      slice(embed_dropout(tokens, positions, padded, {.offset = 2, .position_ids = places}), 0, 0, 1);  // offset loses
  CHECK(slice(row, 1, 2).to_vector<float>() == alone);
  // A row that is all padding.
  CHECK(embed_dropout(tokens, positions, zeros({1, 5}, DType::int64), {.position_ids = zeros({1, 5}, DType::int64)})
            .shape() == Shape{1, 5, 3});
  CHECK_THROWS_WITH_AS(
      embed_dropout(tokens, positions, tensor(Longs{a, b}, {1, 2}), {.position_ids = tensor(Longs{0, -1}, {1, 2})}),
      "embed_dropout: position id -1 at [0, 1] is outside [0, 5)", IndexError);
  CHECK_THROWS_WITH_AS(
      embed_dropout(tokens, positions, tensor(Longs{a, b}, {1, 2}), {.position_ids = tensor(Longs{5, 0}, {2})}),
      "embed_dropout: position id 5 at [0] is outside [0, 5)", IndexError);
  CHECK_THROWS_WITH_AS(embed_dropout(tokens, positions, tensor(Longs{a, 9}, {1, 2})),
                       "embed_dropout: id 9 at [0, 1] is outside [0, 9)", IndexError);
}
