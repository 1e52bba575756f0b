// Cases from public bug reports: gradients of broadcast and shared values, changed values, labels. The ids are those of
// the collection.

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "cases.hpp"
#include "wengert/gradient.hpp"
#include "wengert/kernels.hpp"
#include "wengert/ops.hpp"
#include "wengert/tape.hpp"

using namespace wengert;

namespace {

using Floats = std::vector<float>;
using Longs = std::vector<std::int64_t>;

// The sum over the axes that broadcasting from `shape` to `full` repeats, written out.
Floats summed(const Floats& upstream, const Shape& full, const Shape& shape) {
  Floats out(static_cast<std::size_t>(shape.numel()));
  for (std::int64_t flat = 0; flat < full.numel(); ++flat) {
    std::int64_t rest = flat, place = 0, stride = 1;
    for (std::int64_t axis = full.rank() - 1; axis >= 0; --axis) {
      const std::int64_t index = rest % full[axis], own = axis - (full.rank() - shape.rank());
      rest /= full[axis];
      if (own < 0) continue;
      if (shape[own] != 1) place += index * stride;
      stride *= shape[own];
    }
    out[static_cast<std::size_t>(place)] += upstream[static_cast<std::size_t>(flat)];
  }
  return out;
}

}  // namespace

TEST_CASE("AG-02: broadcast operands get gradients of their own shape, summed") {
  const Shape big{2, 3, 4};
  const Tensor upstream = reshape(arange(0, 24), big).to(DType::float32);
  for (const Shape& shape :
       {Shape{4}, Shape{1, 4}, Shape{3, 1}, Shape{1, 3, 1}, Shape{2, 1, 1}, Shape{}, Shape{1}, Shape{3, 4}, big}) {
    CAPTURE(shape.str());
    for (const bool left : {false, true}) {
      for (const bool minus : {false, true}) {
        const Tensor a = zeros(big).set_requires_grad(), b = zeros(shape).set_requires_grad();
        Tape tape;
        const Tensor y = minus ? (left ? b - a : a - b) : (left ? b + a : a + b);
        tape.backward(y, {.seed = upstream});
        CHECK(b.grad().shape() == shape);
        CHECK(a.grad().shape() == big);
        Floats expected = summed(upstream.to_vector<float>(), big, shape);
        if (minus && !left)
          for (float& value : expected) value = -value;
        CHECK(b.grad().to_vector<float>() == expected);
      }
    }
  }
  const Tensor a = zeros({0, 4}).set_requires_grad(), b = zeros({1, 4}).set_requires_grad();
  Tape tape;
  tape.backward(a + b, {.seed = zeros({0, 4})});
  CHECK(a.grad().shape() == Shape{0, 4});
  CHECK(b.grad().shape() == Shape{1, 4});
  CHECK(b.grad().to_vector<float>() == Floats{0, 0, 0, 0});
}

TEST_CASE("AG-02: the position gradient of a batch is the sum over the batch") {
  const Tensor tokens = zeros({4, 2}).set_requires_grad(), positions = zeros({5, 2}).set_requires_grad();
  Tape tape;
  const Tensor x = embed_dropout(tokens, positions, tensor(Longs{0, 1, 2, 3, 0, 1}, {2, 3}));
  tape.backward(x, {.seed = reshape(arange(0, 12), {2, 3, 2}).to(DType::float32)});
  CHECK(positions.grad().to_vector<float>() == Floats{6, 8, 10, 12, 14, 16, 0, 0, 0, 0});
}

TEST_CASE("AG-03: one operand in several places of one operation") {
  const Tensor x = tensor<float>({3}).set_requires_grad();
  const auto gradient = [&](Tensor (*f)(const Tensor&)) {
    Tensor leaf = x.clone().set_requires_grad();
    Tape tape;
    tape.backward(sum(f(leaf)));
    return leaf.grad().item<double>();
  };
  CHECK(gradient([](const Tensor& v) { return v * v; }) == 6.0);
  CHECK(gradient([](const Tensor& v) { return v + v; }) == 2.0);
  CHECK(gradient([](const Tensor& v) { return v - v; }) == 0.0);
  CHECK(gradient([](const Tensor& v) { return v / v; }) == doctest::Approx(0.0));
  CHECK(gradient([](const Tensor& v) { return concat({v, v, v}); }) == 3.0);
  CHECK(gradient([](const Tensor& v) { return matmul(v, v); }) == 6.0);
  CHECK(gradient([](const Tensor& v) { return mse_loss(v, v * 2.0); }) == 6.0);
  CHECK(gradient([](const Tensor& v) {
          const Tensor y = 3.0 * v;
          return 2.0 * y + 5.0 * y;
        }) == 21.0);
  // One table in both places of the input layer.
  const Tensor table = tensor<float>({{1}, {2}, {3}}).set_requires_grad();
  Tape tape;
  tape.backward(sum(embed_dropout(table, table, tensor<std::int64_t>({2, 2}))));
  CHECK(table.grad().to_vector<float>() == Floats{1, 1, 2});
}

TEST_CASE("AG-07: operations save only what a needed gradient reads") {
  // Each `change` writes one operand after the forward; the backward must notice exactly when it needs that value.
  const auto survives = [](const std::vector<Tensor>& inputs,
                           const std::function<Tensor(const std::vector<Tensor>&)>& f, std::size_t change) {
    Tape tape;
    const Tensor loss = sum(f(inputs));
    {
      const NoGrad pause;
      Tensor changed = inputs[change];
      changed.fill_(1.0);
    }
    try {
      tape.backward(loss);
      return true;
    } catch (const TapeError& error) {
      CHECK(std::string(error.what()).find("changed") != std::string::npos);
      for (const Tensor& input : inputs) CHECK_FALSE(input.gradient().defined());
      return false;
    }
  };
  const auto leaf = [](const Shape& shape) { return full(shape, 2.0).set_requires_grad(); };
  const auto constant = [](const Shape& shape) { return full(shape, 2.0); };
  using In = const std::vector<Tensor>&;
  const auto product = [](In in) { return in[0] * in[1]; };
  CHECK_FALSE(survives({leaf({2}), leaf({2})}, product, 0));
  CHECK_FALSE(survives({leaf({2}), leaf({2})}, product, 1));
  CHECK(survives({leaf({2}), constant({2})}, product, 0));
  CHECK_FALSE(survives({leaf({2}), constant({2})}, product, 1));
  const auto addition = [](In in) { return in[0] + in[1]; };
  CHECK(survives({leaf({2}), leaf({2})}, addition, 0));
  const auto quotient = [](In in) { return in[0] / in[1]; };
  CHECK(survives({leaf({2}), constant({2})}, quotient, 0));
  CHECK_FALSE(survives({leaf({2}), constant({2})}, quotient, 1));
  CHECK_FALSE(survives({constant({2}), leaf({2})}, quotient, 0));
  const auto products = [](In in) { return matmul(in[0], in[1]); };
  CHECK(survives({leaf({2, 2}), constant({2, 2})}, products, 0));
  CHECK_FALSE(survives({leaf({2, 2}), constant({2, 2})}, products, 1));
  const auto layer = [](In in) { return linear(in[0], in[1], in[2]); };
  CHECK(survives({constant({2, 2}), leaf({2, 2}), leaf({2})}, layer, 2));
  CHECK(survives({constant({2, 2}), leaf({2, 2}), leaf({2})}, layer, 1));
  CHECK_FALSE(survives({constant({2, 2}), leaf({2, 2}), leaf({2})}, layer, 0));
  CHECK_FALSE(survives(
      {leaf({2})}, [](In in) { return square(in[0]); }, 0));
  CHECK(survives(
      {leaf({2})}, [](In in) { return exp(in[0]); }, 0));  // reads its output
  CHECK(survives(
      {leaf({2})}, [](In in) { return dropout(in[0], 0.5); }, 0));
  CHECK(survives(
      {leaf({2, 2})},
      [](In in) { return embedding(in[0], tensor<std::int64_t>({1})) + embedding(in[0], tensor<std::int64_t>({0})); },
      0));
  CHECK(survives(
      {leaf({2, 2}), leaf({2, 2})},
      [](In in) {
        return embed_dropout(in[0], in[1], tensor<std::int64_t>({1, 0}), {.p = 0.5});
      },
      0));
  CHECK_FALSE(survives(
      {leaf({2})},
      [](In in) {
        return square(reshape(in[0], {2, 1}));
      },
      0));  // views share the version
  CHECK_FALSE(survives(
      {leaf({2, 2})},
      [](In in) {
        return cross_entropy(in[0], tensor<std::int64_t>({1, 0}));
      },
      0));
}

TEST_CASE("AG-07: the text names the tensor and both versions") {
  Tensor w = full({1}, 2.0).set_requires_grad().set_name("w");
  const Tensor x = full({1}, 5.0);
  Tape tape;
  const Tensor first = sum(w * w * x), second = sum(3.0 * w * w * x);
  tape.backward(first);
  CHECK(w.grad().item() == 20.0);
  {
    const NoGrad pause;
    w.add_(w.grad(), -0.1);
  }
  CHECK_THROWS_WITH_AS(tape.backward(second), doctest::Contains("saved 'w'"), TapeError);
  CHECK(w.grad().item() == 20.0);
}

TEST_CASE("NUM-02: a label outside the classes is named, with its place") {
  const Tensor logits = zeros({2, 3}).set_requires_grad();
  const auto loss = [&](const std::vector<std::int64_t>& labels, std::int64_t ignore, Reduction reduction) {
    return cross_entropy(logits, tensor(labels, {2}), {.ignore_index = ignore, .reduction = reduction});
  };
  Tape tape;
  for (const Reduction reduction : {Reduction::none, Reduction::sum, Reduction::mean}) {
    CHECK_THROWS_WITH_AS(loss({0, -99}, -100, reduction), "cross_entropy: label -99 at [1] is outside [0, 3)",
                         IndexError);
    CHECK_THROWS_WITH_AS(loss({3, 0}, -100, reduction), "cross_entropy: label 3 at [0] is outside [0, 3)", IndexError);
    CHECK_THROWS_WITH_AS(loss({-100, -1}, -100, reduction), "cross_entropy: label -1 at [1] is outside [0, 3)",
                         IndexError);
    CHECK_THROWS_WITH_AS(loss({-100, 1}, 255, reduction), "cross_entropy: label -100 at [0] is outside [0, 3)",
                         IndexError);
    CHECK_THROWS_WITH_AS(loss({255, -100}, 255, reduction), "cross_entropy: label -100 at [1] is outside [0, 3)",
                         IndexError);
  }
  CHECK(tape.size() == 0);
  CHECK_FALSE(logits.gradient().defined());
  CHECK(loss({0, 2}, -100, Reduction::mean).item() == doctest::Approx(std::log(3.0)));
}

TEST_CASE("NUM-02: ignored rows count for nothing") {
  const auto run = [](const std::vector<std::int64_t>& labels, std::int64_t ignore, Reduction reduction) {
    const Tensor logits =
        tensor(cases::make_values(cases::Values::normal, 12, 1), {4, 3}).to(DType::float32).set_requires_grad();
    Tape tape;
    const Tensor loss = cross_entropy(logits, tensor(labels, {4}), {.ignore_index = ignore, .reduction = reduction});
    tape.backward(loss, {.seed = ones(loss.shape())});
    std::pair<Floats, Floats> result{loss.to_vector<float>(), logits.grad().to_vector<float>()};
    return result;
  };
  const auto alone = run({2, 2, 2, 2}, -100, Reduction::none);
  for (const std::int64_t ignore : {std::int64_t{-100}, std::int64_t{255}, std::int64_t{1}}) {
    CAPTURE(ignore);
    const auto none = run({ignore, 2, ignore, ignore}, ignore, Reduction::none);
    CHECK(none.first == Floats{0, alone.first[1], 0, 0});
    for (const Reduction reduction : {Reduction::none, Reduction::sum, Reduction::mean}) {
      const auto one = run({ignore, 2, ignore, ignore}, ignore, reduction);  // the mean divides by 1
      if (reduction != Reduction::none) CHECK(one.first == Floats{alone.first[1]});
      for (std::size_t i = 0; i < 12; ++i) CHECK(one.second[i] == (i / 3 == 1 ? alone.second[i] : 0.0F));
      const auto all = run({ignore, ignore, ignore, ignore}, ignore, reduction);
      for (const float value : all.first) CHECK(value == 0.0F);
      for (const float value : all.second) CHECK(value == 0.0F);
    }
  }
  // No rows at all.
  const Tensor logits = zeros({0, 3}).set_requires_grad();
  Tape tape;
  const Tensor loss = cross_entropy(logits, zeros({0}, DType::int64));
  CHECK(loss.item() == 0.0);
  tape.backward(loss);
  CHECK(logits.grad().shape() == Shape{0, 3});
}

TEST_CASE("NUM-02: large logits stay finite") {
  const Tensor logits = tensor<float>({{1000, 0, -1000}}).set_requires_grad();
  for (const std::int64_t label : {0, 1, 2}) {
    Tape tape;
    const Tensor loss = cross_entropy(logits, tensor(Longs{label}, {1}));
    CHECK(loss.item() == 1000.0 * static_cast<double>(label));
    tape.backward(loss);
    for (const float value : logits.grad().to_vector<float>()) CHECK(std::isfinite(value));
  }
  // An infinite upstream of an ignored row still gives exactly 0.
  const Tensor two = zeros({2, 3}).set_requires_grad();
  Tape tape;
  tape.backward(cross_entropy(two, tensor<std::int64_t>({-100, 1}), {.reduction = Reduction::none}),
                {.seed = tensor<float>({std::numeric_limits<float>::infinity(), 1})});
  const Floats grad = two.grad().to_vector<float>();
  CHECK(grad[0] == 0.0F);
  CHECK(grad[2] == 0.0F);
  CHECK(grad[4] == doctest::Approx(-2.0 / 3.0));
}
