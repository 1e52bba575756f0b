// Cases from public bug reports: dropout. The ids are those of the collection.

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "cases.hpp"
#include "wengert/backend.hpp"
#include "wengert/gradient.hpp"
#include "wengert/ops.hpp"
#include "wengert/random.hpp"
#include "wengert/tape.hpp"

using namespace wengert;

namespace {

using Floats = std::vector<float>;

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

// Result of dropout on x, and the gradient under `upstream`.
struct Both {
  Floats out, grad;
};
Both both(const Tensor& x, double p, const Tensor& upstream, bool training = true) {
  const Tensor leaf = x.clone().set_requires_grad();
  Tape tape;
  const Tensor out = dropout(leaf, p, training);
  tape.backward(out, {.seed = upstream});
  return {out.to_vector<float>(), leaf.grad().to_vector<float>()};
}

std::uint64_t blocks_drawn_by(const Tensor& x, double p, bool training = true) {
  Generator generator(3);
  const GeneratorScope scope(generator);
  dropout(x, p, training);
  return generator.state().counter;
}

}  // namespace

TEST_CASE("DRP-01: p at the ends") {
  const Tensor x = tensor<float>({1, -2, 3});
  for (const double p : {0.0, -0.0}) {
    const Both result = both(x, p, ones({3}));
    CHECK(result.out == Floats{1, -2, 3});
    CHECK(result.grad == Floats{1, 1, 1});
    CHECK(dropout(x, p).is(x));
  }
  const Both all = both(x, 1.0, ones({3}));
  for (const Floats& values : {all.out, all.grad})
    for (const float value : values) {
      CHECK(value == 0.0F);
      CHECK_FALSE(std::signbit(value));
    }
  CHECK(both(full({3}, infinity), 1.0, full({3}, not_a_number)).grad == Floats{0, 0, 0});
  CHECK(both(full({3}, not_a_number), 1.0, ones({3})).out == Floats{0, 0, 0});
  for (const double p : {0.0, 0.5, 1.0}) CHECK(dropout(x, p, false).is(x));
}

TEST_CASE("DRP-01: p outside the ends throws, printing the value") {
  const Tensor x = tensor<float>({1, -2, 3});
  const Tensor ids = zeros({1}, DType::int64), row = zeros({1, 2});
  struct Bad {
    double p;
    const char* text;
  };
  const Bad bad[] = {{-0.1, "p is -0.1, but must be in [0, 1]"},
                     {1.5, "p is 1.5, but must be in [0, 1]"},
                     {std::nan(""), "p is nan, but must be in [0, 1]"},
                     {std::numeric_limits<double>::infinity(), "p is inf, but must be in [0, 1]"}};
  for (const Bad& one : bad)
    for (const bool training : {true, false}) {
      CHECK_THROWS_WITH_AS(dropout(x, one.p, training), (std::string("dropout: ") + one.text).c_str(), ValueError);
      CHECK_THROWS_WITH_AS(embed_dropout(row, row, ids, {.p = one.p, .training = training}),
                           (std::string("embed_dropout: ") + one.text).c_str(), ValueError);
    }
}

TEST_CASE("DRP-01: a call moves the generator by 16 ceil(n / 128) blocks, or not at all") {
  CHECK(blocks_drawn_by(zeros({1}), 0.5) == 16);
  CHECK(blocks_drawn_by(zeros({128}), 0.1) == 16);
  CHECK(blocks_drawn_by(zeros({129}), 0.9) == 32);
  CHECK(blocks_drawn_by(zeros({3, 100}), 0.5) == 48);
  CHECK(blocks_drawn_by(zeros({}), 0.5) == 16);
  CHECK(blocks_drawn_by(zeros({0}), 0.5) == 0);
  CHECK(blocks_drawn_by(zeros({300}), 0.0) == 0);
  CHECK(blocks_drawn_by(zeros({300}), 1.0) == 0);
  CHECK(blocks_drawn_by(zeros({300}), 0.5, false) == 0);
}

TEST_CASE("DRP-03: a dropped Inf or NaN is 0, a kept one stays, forward and backward") {
  for (const float value : {infinity, not_a_number}) {
    CAPTURE(value);
    const Both result = both(full({1000}, value), 0.5, full({1000}, value));
    int dropped = 0;
    for (std::size_t i = 0; i < result.out.size(); ++i) {
      const bool zero = result.out[i] == 0.0F;
      dropped += zero;
      CHECK((zero || (std::isnan(value) ? std::isnan(result.out[i]) : result.out[i] == infinity)));
      CHECK(zero == (result.grad[i] == 0.0F));
      CHECK_FALSE((zero && std::signbit(result.out[i])));
    }
    CHECK(dropped > 400);
    CHECK(dropped < 600);
  }
}

TEST_CASE("DRP-04: every call draws a mask of its own") {
  Generator generator(7);
  const GeneratorScope scope(generator);
  const Tensor x = ones({20'000});
  const auto kept = [](const Tensor& y) {
    std::vector<bool> mask;
    for (const float value : y.to_vector<float>()) mask.push_back(value != 0.0F);
    return mask;
  };
  const auto first = kept(dropout(x, 0.5)), second = kept(dropout(x, 0.5));
  int agree = 0, halves = 0, share = 0;
  for (std::size_t i = 0; i < first.size(); ++i) {
    agree += first[i] == second[i];
    share += first[i];
    if (i < 10'000) halves += first[i] == first[i + 10'000];
  }
  const double sigma = std::sqrt(20'000 * 0.25);
  CHECK(std::abs(agree - 10'000) < 5 * sigma);
  CHECK(std::abs(share - 10'000) < 5 * sigma);
  CHECK(std::abs(halves - 5'000) < 5 * std::sqrt(10'000 * 0.25));
}

TEST_CASE("DRP-04: a seed repeats its masks, whatever the number of threads; ranks differ") {
  const int before = num_threads();
  const auto run = [](std::uint64_t stream) {
    Generator generator(7, stream);
    const GeneratorScope scope(generator);
    return dropout(ones({20'000}), 0.5).to_vector<float>();
  };
  const Floats expected = run(0);
  for (const int threads : {1, 3, 8}) {
    set_num_threads(threads);
    CHECK(run(0) == expected);
  }
  set_num_threads(before);
  const Floats other = run(1);
  int agree = 0;
  for (std::size_t i = 0; i < other.size(); ++i) agree += other[i] == expected[i];
  CHECK(std::abs(agree - 10'000) < 5 * std::sqrt(20'000 * 0.25));
}

TEST_CASE("DRP-04: the mask does not depend on the type or the shape") {
  const auto run = [](const Tensor& x) {
    Generator generator(9);
    const GeneratorScope scope(generator);
    return dropout(x, 0.25).to_vector<double>();
  };
  const std::vector<double> flat = run(ones({600}, DType::float64));
  CHECK(run(ones({3, 200}, DType::float64)) == flat);
  const std::vector<double> narrow = run(ones({600}));
  for (std::size_t i = 0; i < flat.size(); ++i) CHECK((narrow[i] == 0.0) == (flat[i] == 0.0));
}

TEST_CASE("DRP-05: the gradient has the forward's mask and scale, and p is the probability to drop") {
  for (const double p : {0.1, 0.9}) {
    CAPTURE(p);
    Generator generator(21);
    const GeneratorScope scope(generator);
    const Tensor x = ones({10'000}).set_requires_grad();
    Tape tape;
    const Tensor y = dropout(x, p);
    dropout(ones({500}), 0.5);  // another random call in between
    randn({10});
    tape.backward(y, {.seed = ones({10'000})});
    const Floats out = y.to_vector<float>();
    CHECK(x.grad().to_vector<float>() == out);
    double total = 0.0;
    int kept = 0;
    const auto scale = static_cast<float>(1.0 / (1.0 - p));
    for (const float value : out) {
      total += value;
      kept += value != 0.0F;
      CHECK((value == 0.0F || value == scale));
    }
    const double sigma = std::sqrt(10'000 * p * (1.0 - p));
    CHECK(std::abs(kept - 10'000 * (1.0 - p)) < 5 * sigma);
    CHECK(total / 10'000 == doctest::Approx(1.0).epsilon(5 * sigma / 10'000 / (1.0 - p)));
  }
}

TEST_CASE("DRP-05: the fused input layer drops alike in both tables' gradients") {
  const Tensor tokens = ones({300, 5}).set_requires_grad(), positions = zeros({300, 5}).set_requires_grad();
  const Tensor ids = arange(0, 300);
  Generator generator(4);
  const GeneratorScope scope(generator);
  Tape tape;
  const Tensor y = embed_dropout(tokens, positions, ids, {.p = 0.9});
  dropout(ones({500}), 0.5);
  tape.backward(y, {.seed = ones({300, 5})});
  const Floats out = y.to_vector<float>();
  CHECK(tokens.grad().to_vector<float>() == out);
  CHECK(positions.grad().to_vector<float>() == out);
  int kept = 0;
  for (const float value : out) kept += value != 0.0F;
  CHECK(kept > 90);
  CHECK(kept < 210);
}
