// gelu, layer norm, attention and smoothed labels: extreme values, conventions, errors.

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <string>

#include "same_bits.hpp"
#include "wengert/bits.hpp"
#include "wengert/gradient.hpp"
#include "wengert/ops.hpp"
#include "wengert/random.hpp"
#include "wengert/tape.hpp"

using namespace wengert;
using doctest::Approx;

namespace {

using Values = std::vector<double>;

constexpr double infinite = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

Tensor floats(const Values& values, const Shape& shape) { return tensor(values, shape).to(DType::float32); }
Tensor floats(const Values& values) { return floats(values, {static_cast<std::int64_t>(values.size())}); }
Values of(const Tensor& x) { return x.to_vector<double>(); }

// f(x) and its derivative at each value, on the current backend in float32.
struct Mapped {
  Values value, slope;
};
template <class F>
Mapped apply(F f, const Values& values) {
  const Tensor x = floats(values).set_requires_grad();
  Tape tape;
  const Tensor y = f(x);
  tape.backward(y, {.seed = ones(y.shape())});
  return {of(y), of(x.grad())};
}

// The formulas in double, written so that neither tail cancels.
double exact_gelu(double x) { return x * 0.5 * std::erfc(-x / std::numbers::sqrt2); }
double exact_gelu_slope(double x) {
  return 0.5 * std::erfc(-x / std::numbers::sqrt2) + x * std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
}
double tanh_share(double x) {
  return 1 / (1 + std::exp(-2 * std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}
double tanh_gelu(double x) { return x * tanh_share(x); }
double tanh_gelu_slope(double x) {
  const double share = tanh_share(x);
  return share + x * share * (1 - share) * 2 * std::sqrt(2 / std::numbers::pi) * (1 + 3 * 0.044715 * x * x);
}

struct Form {
  const char* name;
  Approximate approximate;
  double (*value)(double);
  double (*slope)(double);
};
const Form forms[] = {{"none", Approximate::none, exact_gelu, exact_gelu_slope},
                      {"tanh", Approximate::tanh, tanh_gelu, tanh_gelu_slope}};

}  // namespace

TEST_CASE("NUM-04: both forms of gelu and their derivatives, far out too") {
  const Values points{8, 10, 11, 12, 40, 1e4, -4, -6.5, -40, 0, -0.0, infinite, -infinite, not_a_number, -1e4, 3e38};
  for (const Form& form : forms) {
    CAPTURE(form.name);
    const Mapped got = apply([&](const Tensor& x) { return gelu(x, form.approximate); }, points);
    for (std::size_t i = 0; i < points.size(); ++i) {
      const double x = points[i];
      CAPTURE(x);
      if (std::isnan(x)) {
        CHECK(std::isnan(got.value[i]));
        CHECK(std::isnan(got.slope[i]));
      } else if (x > 7) {
        CHECK(got.value[i] == x * (std::isinf(x) ? 1 : static_cast<double>(static_cast<float>(x)) / x));
        CHECK(got.slope[i] == 1);
      } else if (x < -30) {
        CHECK(got.value[i] == 0);
        CHECK(got.slope[i] == 0);
      } else {  // the tail is small but not 0, and has digits
        CHECK(std::abs(got.value[i] - form.value(x)) <= 2e-5 * std::abs(form.value(x)));
        CHECK(std::abs(got.slope[i] - form.slope(x)) <= 1e-6 + 2e-5 * std::abs(form.slope(x)));
      }
    }
    CHECK(got.value[7] < 0);  // -6.5
  }
}

TEST_CASE("NUM-04: the two forms differ, and each follows its own formula to 1e-5") {
  Values points;
  for (int i = -600; i <= 600; ++i) points.push_back(static_cast<double>(static_cast<float>(0.01 * i)));
  double gap = 0;
  for (const Form& form : forms) {
    CAPTURE(form.name);
    const Mapped got = apply([&](const Tensor& x) { return gelu(x, form.approximate); }, points);
    double worst = 0, worst_slope = 0;
    for (std::size_t i = 0; i < points.size(); ++i) {
      worst = std::max(worst, std::abs(got.value[i] - form.value(points[i])));
      worst_slope = std::max(worst_slope, std::abs(got.slope[i] - form.slope(points[i])));
      gap = std::max(gap, std::abs(exact_gelu(points[i]) - tanh_gelu(points[i])));
    }
    CHECK(worst < 2e-6);
    CHECK(worst_slope < 2e-6);
  }
  CHECK(gap > 4e-4);
  CHECK(of(gelu(floats({2.7}))) == of(gelu(floats({2.7}), Approximate::none)));  // the default is PyTorch's
  CHECK(of(gelu(floats({2.7}))) != of(gelu(floats({2.7}), Approximate::tanh)));
}

TEST_CASE("where selects: what is not chosen may be anything, and gets no gradient") {
  const Tensor a = floats({1, not_a_number, 3}).set_requires_grad(),
               b = floats({infinite, 20, not_a_number}).set_requires_grad();
  Tape tape;
  const Tensor out = where(tensor<std::int64_t>({5, 0, -1}), a, b);
  CHECK(of(out) == Values{1, 20, 3});
  tape.backward(out, {.seed = floats({infinite, 7, 8})});
  CHECK(of(a.grad()) == Values{infinite, 0, 8});
  CHECK(of(b.grad()) == Values{0, 7, 0});
  CHECK(of(where(floats({not_a_number, -0.0}), floats({1, 1}), floats({2, 2}))) == Values{1, 2});
  CHECK_THROWS_WITH_AS(where(zeros({2}, DType::float64), floats({1, 1}), floats({2, 2})),
                       "where: the condition must be int32, int64 or float32, got float64", DTypeError);
  CHECK_THROWS_AS(where(zeros({3}), floats({1, 1}), floats({2, 2})), ShapeError);
  CHECK_THROWS_AS(where(zeros({2}), floats({1, 1}), zeros({2}, DType::float64)), DTypeError);
}

// --- Layer norm ---

namespace {

// In double: (x - mean) / sqrt(variance + eps).
Values normalized(const Values& x, std::int64_t n, double eps) {
  Values out;
  for (std::size_t row = 0; row < x.size(); row += static_cast<std::size_t>(n)) {
    const auto end = row + static_cast<std::size_t>(n);
    double mean = 0, variance = 0;
    for (std::size_t i = row; i < end; ++i) mean += x[i] / static_cast<double>(n);
    for (std::size_t i = row; i < end; ++i) variance += (x[i] - mean) * (x[i] - mean) / static_cast<double>(n);
    for (std::size_t i = row; i < end; ++i) out.push_back((x[i] - mean) / std::sqrt(variance + eps));
  }
  return out;
}
double worst_gap(const Values& a, const Values& b) {
  REQUIRE(a.size() == b.size());
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double gap = std::abs(a[i] - b[i]);
    worst = std::isnan(gap) ? infinite : std::max(worst, gap);
  }
  return worst;
}

}  // namespace

TEST_CASE("NUM-03: layer norm of rows far from 0") {
  for (const double b : {0.0, 5000.0, 40000.0, -40000.0}) {
    CAPTURE(b);
    const Values row{b, b + .25, b + .5, b + .75};
    CHECK(worst_gap(of(layer_norm(floats(row, {1, 4}), 4)), normalized(row, 4, 1e-5)) < 1e-4);
    for (const std::int64_t n : {7, 64, 1000}) {  // long rows, and one of them in reverse
      CAPTURE(n);
      Values rows;
      for (std::int64_t i = 0; i < 2 * n; ++i) rows.push_back(b + 0.25 * static_cast<double>((i * 7) % 13));
      CHECK(worst_gap(of(layer_norm(floats(rows, {2, n}), n)), normalized(rows, n, 1e-5)) < 1e-4);
    }
  }
}

TEST_CASE("NUM-03: a constant row gives exactly the bias, and finite gradients") {
  for (const double value : {1234.1, 10000.1, 0.0, -3e30})
    for (const std::int64_t n : {1, 5, 16, 1000}) {
      CAPTURE(value);
      CAPTURE(n);
      const Tensor x = full({3, n}, value).set_requires_grad();
      const Tensor weight = full({n}, 2.0).set_requires_grad(), bias = full({n}, 0.75).set_requires_grad();
      Tape tape;
      const Tensor y = layer_norm(x, n, weight, bias);
      CHECK(of(y) == Values(static_cast<std::size_t>(3 * n), 0.75));
      Values seed;
      for (std::int64_t i = 0; i < 3 * n; ++i) seed.push_back(static_cast<double>(i % 3) - 1.0);
      tape.backward(y, {.seed = floats(seed, {3, n})});
      for (const Tensor& input : {x, weight, bias})
        for (const double gradient : of(input.grad())) CHECK(std::isfinite(gradient));
      CHECK(of(weight.grad()) == Values(static_cast<std::size_t>(n), 0.0));
    }
}

TEST_CASE("layer norm: what it refuses") {
  const Tensor x = zeros({2, 3, 4});
  CHECK_THROWS_WITH_AS(layer_norm(x, 3), "layer_norm: shape [2, 3, 4] does not end with normalized_shape [3]",
                       ShapeError);
  CHECK_THROWS_WITH_AS(layer_norm(x, {2, 3}), "layer_norm: shape [2, 3, 4] does not end with normalized_shape [2, 3]",
                       ShapeError);
  CHECK_THROWS_AS(layer_norm(x, {1, 2, 3, 4}), ShapeError);
  CHECK_THROWS_WITH_AS(layer_norm(x, 4, {}, {}, -1.0), "layer_norm: eps is -1; it must not be negative", ValueError);
  CHECK_THROWS_WITH_AS(layer_norm(x, Shape{}), "layer_norm: normalized_shape must have an axis at least, got []",
                       ShapeError);
  CHECK_THROWS_WITH_AS(layer_norm(x, 4, zeros({3})), "layer_norm: the weight must have shape [4], got [3]", ShapeError);
  CHECK_THROWS_WITH_AS(layer_norm(x, {3, 4}, {}, zeros({4})), "layer_norm: the bias must have shape [3, 4], got [4]",
                       ShapeError);
  CHECK_THROWS_AS(layer_norm(x, 4, zeros({4}, DType::float64)), DTypeError);
  CHECK_THROWS_AS(layer_norm(zeros({2, 3}, DType::int64), 3), DTypeError);
}

// --- Attention ---

TEST_CASE("attention: a query that sees no key gets 0 and passes no gradient on") {
  for (const bool causal : {false, true}) {
    Generator generator(5);
    const auto random = [&](std::int64_t length) {
      return randn({2, 2, length, 8}, DType::float32, generator).set_requires_grad();
    };
    // Sequence 1 has no keys; with causal and three queries more than keys, the first three see none either.
    const std::int64_t tq = causal ? 8 : 5;
    const Tensor q = random(tq), k = random(5), v = random(5);
    const Tensor mask = tensor<std::int64_t>({{1, 1, 0, 1, 1}, {0, 0, 0, 0, 0}});
    Tape tape;
    const Tensor out = scaled_dot_product_attention(q, k, v, {.causal = causal, .key_mask = mask});
    tape.backward(out, {.seed = ones(out.shape())});
    for (const Tensor& x : {out, q.grad(), k.grad(), v.grad()})
      for (const double value : of(x)) CHECK(std::isfinite(value));
    const Values result = of(out), of_q = of(q.grad()), of_v = of(v.grad());
    for (std::int64_t i = 0; i < 2 * tq * 8; ++i) {
      const auto second = static_cast<std::size_t>(2 * tq * 8 + i);
      CHECK(result[second] == 0);
      CHECK(of_q[second] == 0);
      const bool blind = causal && i / 8 % tq < 3;
      CHECK((result[static_cast<std::size_t>(i)] == 0) == blind);
    }
    for (std::size_t i = 2 * 5 * 8; i < of_v.size(); ++i) CHECK(of_v[i] == 0);
    for (std::size_t c = 0; c < 8; ++c) CHECK(of_v[2 * 8 + c] == 0);  // the masked key of sequence 0
  }
}

TEST_CASE("attention: every row of the weights draws whole random blocks of its own") {
  const double p = 0.4;
  for (const std::int64_t keys : {3, 128, 130}) {
    const std::int64_t queries = 3, blocks = (keys + 127) / 128 * 16;
    // All scores are equal, and the values are the unit vectors: what comes out is the dropped weights.
    Values unit;
    for (std::int64_t i = 0; i < 2 * keys * keys; ++i) unit.push_back(i / keys % keys == i % keys ? 1 : 0);
    const Tensor q = zeros({1, 2, queries, keys}), k = zeros({1, 2, keys, keys}), v = floats(unit, {1, 2, keys, keys});
    Generator generator(11, 3);
    generator.reserve(7);
    Values out;
    {
      const GeneratorScope scope(generator);
      out = of(scaled_dot_product_attention(q, k, v, {.dropout = p}));
    }
    CHECK(generator.state().counter == static_cast<std::uint64_t>(7 + 2 * queries * blocks));
    for (std::int64_t row = 0; row < 2 * queries; ++row) {
      const bits::Drawing drawing{p, 11, 3, static_cast<std::uint64_t>(7 + row * blocks)};
      for (std::int64_t key = 0; key < keys; ++key) {
        const double wanted = drawing.keeps(key) ? 1 / (static_cast<double>(keys) * (1 - p)) : 0;
        CHECK(out[static_cast<std::size_t>(row * keys + key)] == Approx(wanted).epsilon(1e-5));
      }
    }
  }
}

TEST_CASE("self_attention has the values of scaled_dot_product_attention of its parts") {
  Generator generator(2);
  const Tensor qkv = randn({2, 5, 3 * 6}, DType::float32, generator);
  const auto part = [&](std::int64_t i) {
    return permute(reshape(slice(qkv, 2, 6 * i, 6 * i + 6), {2, 5, 3, 2}), {0, 2, 1, 3});
  };
  const Tensor whole = self_attention(qkv, 3, {.causal = true});
  const Tensor apart = scaled_dot_product_attention(part(0), part(1), part(2), {.causal = true});
  CHECK(of(whole) == of(reshape(permute(apart, {0, 2, 1, 3}), {2, 5, 6})));
}

TEST_CASE("attention: what it refuses") {
  const char* op = "scaled_dot_product_attention";
  const Tensor q = zeros({2, 3, 4, 5}), k = zeros({2, 3, 6, 5});
  CHECK_THROWS_WITH_AS(scaled_dot_product_attention(zeros({3, 4, 5}), k, k),
                       (std::string(op) + ": q must have shape (batch, heads, tq, d), got [3, 4, 5]").c_str(),
                       ShapeError);
  CHECK_THROWS_WITH_AS(
      scaled_dot_product_attention(q, k, zeros({2, 3, 5, 5})),
      (std::string(op) + ": q [2, 3, 4, 5], k [2, 3, 6, 5] and v [2, 3, 5, 5] do not fit: k and v must be equal, and "
                         "differ from q in axis 2 alone")
          .c_str(),
      ShapeError);
  CHECK_THROWS_AS(scaled_dot_product_attention(q, zeros({2, 3, 6, 4}), zeros({2, 3, 6, 4})), ShapeError);
  CHECK_THROWS_AS(scaled_dot_product_attention(q, zeros({2, 1, 6, 5}), zeros({2, 1, 6, 5})), ShapeError);
  CHECK_THROWS_WITH_AS(scaled_dot_product_attention(q, k, k, {.key_mask = zeros({2, 4}, DType::int64)}),
                       (std::string(op) + ": key_mask must have shape [2, 6] (batch, keys), got [2, 4]").c_str(),
                       ShapeError);
  CHECK_THROWS_WITH_AS(scaled_dot_product_attention(q, k, k, {.key_mask = zeros({2, 6}, DType::float64)}),
                       (std::string(op) + ": key_mask must be int32, int64 or float32, got float64").c_str(),
                       DTypeError);
  const std::uint64_t before = default_generator().state().counter;
  CHECK_THROWS_AS(scaled_dot_product_attention(q, k, k, {.dropout = 1.5}), ValueError);
  CHECK(default_generator().state().counter == before);
  CHECK_THROWS_WITH_AS(self_attention(zeros({2, 3, 10}), 2),
                       "self_attention: the last axis of qkv [2, 3, 10] must be a multiple of 3 * 2 heads", ShapeError);
  CHECK_THROWS_WITH_AS(self_attention(zeros({2, 3, 12}), 0), "self_attention: num_heads is 0; it must be positive",
                       ValueError);
}

// --- Smoothed labels ---

TEST_CASE("cross_entropy: label smoothing is the formula of PyTorch") {
  const double s = 0.3;
  const Values logits{1, 2, 3, 1000, 0, -1000, -1, 0.5, 4};
  const std::vector<std::int64_t> labels{2, 1, -100};
  Values expected, gradients;
  for (std::size_t row = 0; row < 3; ++row) {
    const double* x = &logits[3 * row];
    const double largest = std::max({x[0], x[1], x[2]});
    double total = 0;
    for (std::size_t c = 0; c < 3; ++c) total += std::exp(x[c] - largest);
    const double norm = largest + std::log(total);
    double loss = 0;
    for (std::size_t c = 0; c < 3; ++c) {
      const double target = (labels[row] == static_cast<std::int64_t>(c) ? 1 - s : 0) + s / 3;
      loss += target * (norm - x[c]);
      gradients.push_back(labels[row] < 0 ? 0 : std::exp(x[c] - norm) - target);
    }
    expected.push_back(labels[row] < 0 ? 0 : loss);
  }
  const Tensor x = floats(logits, {3, 3}).set_requires_grad(), y = tensor(labels, {3});
  {
    Tape tape;
    const Tensor losses = cross_entropy(x, y, {.reduction = Reduction::none, .label_smoothing = s});
    CHECK(worst_gap(of(losses), expected) < 1e-4);  // of 1000
    tape.backward(losses, {.seed = ones({3})});
  }
  CHECK(worst_gap(of(x.grad()), gradients) < 1e-6);
  // The mean is over the rows that are not ignored.
  CHECK(cross_entropy(x, y, {.label_smoothing = s}).item() == Approx((expected[0] + expected[1]) / 2));
  for (const double bad : {-0.1, 1.1, not_a_number})
    CHECK_THROWS_AS(cross_entropy(x, y, {.label_smoothing = bad}), ValueError);
  CHECK_THROWS_WITH_AS(cross_entropy(x, y, {.label_smoothing = 2.0}),
                       "cross_entropy: label_smoothing 2 is outside [0, 1]", ValueError);
}

TEST_CASE("cross_entropy: an ignored label beyond 2^24 is not taken for the class that float32 rounds to it") {
  constexpr std::int64_t large = std::int64_t{1} << 24;
  const Tensor few = zeros({3, 2});
  CHECK(cross_entropy(few, tensor<std::int64_t>({1, 128 * large, 0}), {.ignore_index = 128 * large}).item() ==
        Approx(std::log(2.0)));
  if (current_backend().name() != "xsimd") return;  // 200 MB: on the fastest backend, since all count alike
  const Tensor many = zeros({3, large + 2}), labels = tensor<std::int64_t>({large + 1, large, large});
  CHECK(cross_entropy(many, labels, {.ignore_index = large + 1}).item() == Approx(std::log(large + 2.0)));
}
