// Results and gradients that were worked out by hand.

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "wengert/gradient.hpp"
#include "wengert/kernels.hpp"
#include "wengert/ops.hpp"
#include "wengert/tape.hpp"

using namespace wengert;
using doctest::Approx;

namespace {

using Floats = std::vector<float>;
using Longs = std::vector<std::int64_t>;

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

Floats values(const Tensor& x) { return x.to_vector<float>(); }

Tensor leaf(Tensor x) { return x.set_requires_grad(); }

}  // namespace

TEST_CASE("values: arithmetic and its gradients") {
  const Tensor a = leaf(tensor<float>({{1, 2}, {3, 4}})), b = leaf(tensor<float>({10, 20}));
  Tape tape;
  CHECK(values(a + b) == Floats{11, 22, 13, 24});
  CHECK(values(a - b) == Floats{-9, -18, -7, -16});
  CHECK(values(a * b) == Floats{10, 40, 30, 80});
  CHECK(values(b / a) == Floats{10, 10, 10.0F / 3.0F, 5});
  CHECK(values(2.0 - a) == Floats{1, 0, -1, -2});
  CHECK(values(12.0 / a) == Floats{12, 6, 4, 3});
  tape.backward(sum(a * b));
  CHECK(values(a.grad()) == Floats{10, 20, 10, 20});
  CHECK(values(b.grad()) == Floats{4, 6});
  tape.backward(sum(b / a));  // adds up
  CHECK(values(a.grad()) == Floats{0, 15, 10.0F - 10.0F / 9.0F, 20.0F - 20.0F / 16.0F});
  CHECK(b.grad().to_vector<double>()[0] == Approx(4.0 + 1.0 + 1.0 / 3.0));
}

TEST_CASE("values: element by element") {
  const Tensor x = tensor<float>({-1, 0, 4});
  CHECK(values(-x) == Floats{1, 0, -4});
  CHECK(values(square(x)) == Floats{1, 0, 16});
  CHECK(values(relu(x)) == Floats{0, 0, 4});
  CHECK(values(sqrt(x))[2] == 2.0F);
  CHECK(std::isnan(values(sqrt(x))[0]));
  CHECK(values(exp(x))[1] == 1.0F);
  CHECK(values(exp(x))[2] == Approx(54.598150));
  CHECK(values(log(x))[1] == -infinity);
  CHECK(values(log(x))[2] == Approx(1.3862944));
  CHECK(values(tanh(x))[0] == Approx(-0.7615942));
  CHECK(std::isnan(values(relu(tensor<float>({not_a_number})))[0]));
  const Tensor spoiled = tensor<float>({not_a_number, -1, 0, 1}).set_requires_grad();
  Tape tape;
  tape.backward(relu(spoiled), {.seed = full({4}, 3.0)});
  CHECK(values(spoiled.grad()) == Floats{3, 0, 0, 3});  // as PyTorch's
}

TEST_CASE("values: reductions") {
  const Tensor x = tensor<float>({{1, 5, 3}, {7, -2, 7}});
  CHECK(sum(x).item() == 21.0);
  CHECK(values(sum(x, 0)) == Floats{8, 3, 10});
  CHECK(values(mean(x, -1)) == Floats{3, 4});
  CHECK(mean(x).item() == 3.5);
  CHECK(values(max(x, 1)) == Floats{5, 7});
  CHECK(max(x).item() == 7.0);
  CHECK(argmax(x, 1).to_vector<std::int64_t>() == Longs{1, 0});
  CHECK(argmax(x).item<std::int64_t>() == 3);
  CHECK(argmax(x, 0, true).shape() == Shape{1, 3});
  CHECK(argmax(x).dtype() == DType::int64);
  CHECK(sum(zeros({0})).item() == 0.0);
  CHECK(std::isnan(mean(zeros({0})).item()));
  CHECK(std::isnan(mean(zeros({2, 0}), 1).to_vector<float>()[1]));
  CHECK(std::isnan(max(tensor<float>({1, not_a_number, 3})).item()));
  CHECK(argmax(tensor<float>({1, not_a_number, 3, not_a_number})).item<std::int64_t>() == 1);
}

TEST_CASE("values: the mean's gradient is spread evenly; an infinite upstream of max leaves the others at 0") {
  const Tensor x = leaf(tensor<float>({{1, 2}, {3, 4}}));
  {
    Tape tape;
    tape.backward(mean(x));
  }
  CHECK(values(x.grad()) == Floats{0.25, 0.25, 0.25, 0.25});
  const Tensor y = leaf(tensor<float>({1, 9, 2}));
  Tape tape;
  tape.backward(max(y), {.seed = full({}, infinity)});
  CHECK(values(y.grad()) == Floats{0, infinity, 0});
}

TEST_CASE("values: shapes") {
  const Tensor x = tensor<float>({{1, 2, 3}, {4, 5, 6}});
  CHECK(values(reshape(x, {3, -1})) == Floats{1, 2, 3, 4, 5, 6});
  CHECK(reshape(x, {3, -1}).shape() == Shape{3, 2});
  CHECK(&reshape(x, {-1}).storage() == &x.storage());
  CHECK(values(transpose(x, 0, 1)) == Floats{1, 4, 2, 5, 3, 6});
  CHECK(values(slice(x, 1, 1)) == Floats{2, 3, 5, 6});
  CHECK(values(slice(x, 1, -1)) == Floats{3, 6});
  CHECK(values(slice(x, 0, 0, -1)) == Floats{1, 2, 3});
  CHECK(slice(x, 0, 5, 9).shape() == Shape{0, 3});
  CHECK(slice(x, 0, INT64_MIN, INT64_MAX).shape() == Shape{2, 3});
  CHECK(values(concat({x, x}, 1)) == Floats{1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6});
  CHECK(values(broadcast_to(tensor<float>({7, 8}), {2, 2})) == Floats{7, 8, 7, 8});
  const Tensor cube = reshape(arange(0, 24), {2, 3, 4});
  CHECK(slice(permute(cube, {1, 2, 0}), 0, 1, 2).to_vector<std::int64_t>() == Longs{4, 16, 5, 17, 6, 18, 7, 19});
  CHECK(transpose(cube, 0, 2).dtype() == DType::int64);
}

TEST_CASE("values: matmul against sums written out") {
  const Tensor a = leaf(tensor<float>({{1, 2, 3}, {4, 5, 6}})), b = leaf(tensor<float>({{1, 0}, {2, 1}, {0, 3}}));
  Tape tape;
  const Tensor c = matmul(a, b);
  CHECK(values(c) == Floats{5, 11, 14, 23});
  tape.backward(c, {.seed = tensor<float>({{1, 10}, {100, 1000}})});
  CHECK(values(a.grad()) == Floats{1, 12, 30, 100, 1200, 3000});
  CHECK(values(b.grad()) == Floats{401, 4010, 502, 5020, 603, 6030});
  CHECK(matmul(tensor<float>({1, 2, 3}), tensor<float>({4, 5, 6})).item() == 32.0);
  CHECK(values(matmul(tensor<float>({1, 2}), tensor<float>({{1, 2}, {3, 4}}))) == Floats{7, 10});
  CHECK(values(matmul(tensor<float>({{1, 2}, {3, 4}}), tensor<float>({1, 2}))) == Floats{5, 11});
  // Each of three batch layouts: (2,2,1) (2,1,2); one matrix on either side.
  const Tensor left = tensor<float>({{{1}, {2}}, {{3}, {4}}}), right = tensor<float>({{{1, 10}}, {{2, 20}}});
  CHECK(values(matmul(left, right)) == Floats{1, 10, 2, 20, 6, 60, 8, 80});
  CHECK(values(matmul(left, tensor<float>({{1, 10}}))) == Floats{1, 10, 2, 20, 3, 30, 4, 40});
  CHECK(values(matmul(tensor<float>({{1}, {2}}), right)) == Floats{1, 10, 2, 20, 2, 20, 4, 40});
  CHECK(values(matmul(zeros({2, 0}), zeros({0, 3}))) == Floats{0, 0, 0, 0, 0, 0});
}

TEST_CASE("values: linear") {
  const Tensor x = leaf(tensor<float>({{1, 2}, {3, 4}, {5, 6}})), weight = leaf(tensor<float>({{1, -1}, {2, 0}}));
  const Tensor bias = leaf(tensor<float>({100, 200}));
  Tape tape;
  const Tensor y = linear(x, weight, bias);
  CHECK(values(y) == Floats{99, 202, 99, 206, 99, 210});
  tape.backward(y, {.seed = tensor<float>({{1, 0}, {0, 1}, {1, 1}})});
  CHECK(values(x.grad()) == Floats{1, -1, 2, 0, 3, -1});
  CHECK(values(weight.grad()) == Floats{6, 8, 8, 10});
  CHECK(values(bias.grad()) == Floats{2, 2});
}

TEST_CASE("values: softmax and losses") {
  const Tensor x = leaf(tensor<float>({{0, std::log(3.0F)}, {1000, -1000}}));
  const Floats soft = values(softmax(x));
  CHECK(soft[0] == Approx(0.25));
  CHECK(soft[1] == Approx(0.75));
  CHECK(soft[2] == 1.0F);
  CHECK(soft[3] == 0.0F);
  CHECK(values(log_softmax(x))[3] == Approx(-2000.0));
  CHECK(values(softmax(x, 0))[0] == 0.0F);
  Tape tape;
  const Tensor loss = cross_entropy(x, tensor<std::int64_t>({0, 0}));
  CHECK(loss.item() == Approx(std::log(4.0) / 2.0));
  tape.backward(loss);
  const Floats grad = values(x.grad());
  CHECK(grad[0] == Approx(-0.375));
  CHECK(grad[1] == Approx(0.375));
  CHECK(grad[2] == 0.0F);
  CHECK(grad[3] == 0.0F);
  CHECK(mse_loss(tensor<float>({1, 2, 3}), tensor<float>({1, 4, 0})).item() == Approx(13.0 / 3.0));
  CHECK(mse_loss(tensor<float>({1, 2, 3}), tensor<float>({1, 4, 0}), Reduction::sum).item() == 13.0);
  CHECK(values(mse_loss(tensor<float>({1, 2, 3}), tensor<float>({1, 4, 0}), Reduction::none)) == Floats{0, 4, 9});
  CHECK(std::isnan(mse_loss(zeros({0}), zeros({0})).item()));
}

TEST_CASE("values: embedding and its row gradient") {
  const Tensor table = leaf(tensor<float>({{0, 1}, {10, 11}, {20, 21}, {30, 31}}));
  Tape tape;
  const Tensor x = embedding(table, tensor<std::int32_t>({{3, 1}, {3, 0}}));
  CHECK(x.shape() == Shape{2, 2, 2});
  CHECK(values(x) == Floats{30, 31, 10, 11, 30, 31, 0, 1});
  tape.backward(x, {.seed = tensor<float>({{{1, 2}, {3, 4}}, {{5, 6}, {7, 8}}})});
  REQUIRE(table.gradient().is_rows());
  const RowGrad& rows = table.gradient().rows();
  CHECK(rows.num_rows == 4);
  CHECK(rows.ids.to_vector<std::int64_t>() == Longs{0, 1, 3});
  CHECK(values(rows.rows) == Floats{7, 8, 3, 4, 6, 8});
  CHECK(values(table.grad()) == Floats{7, 8, 3, 4, 0, 0, 6, 8});
}

TEST_CASE("values: the gradient of a table that is not a leaf is dense") {
  const Tensor raw = leaf(tensor<float>({{1, 2}, {3, 4}}));
  Tape tape;
  tape.backward(sum(embedding(raw * 2.0, tensor<std::int64_t>({1, 1, 1}))));
  CHECK(raw.gradient().is_dense());
  CHECK(values(raw.grad()) == Floats{0, 0, 6, 6});
}

TEST_CASE("values: embed_dropout adds the position of each token") {
  const Tensor tokens = leaf(tensor<float>({{1}, {2}, {3}})), positions = leaf(tensor<float>({{10}, {20}, {30}, {40}}));
  const Tensor ids = tensor<std::int64_t>({{0, 2}, {2, 2}});
  Tape tape;
  CHECK(values(embed_dropout(tokens, positions, ids)) == Floats{11, 23, 13, 23});
  CHECK(values(embed_dropout(tokens, positions, ids, {.offset = 2})) == Floats{31, 43, 33, 43});
  const Tensor x = embed_dropout(tokens, positions, ids, {.position_ids = tensor<std::int64_t>({{0, 0}, {3, 0}})});
  CHECK(values(x) == Floats{11, 13, 43, 13});
  tape.backward(x, {.seed = tensor<float>({{{1}, {2}}, {{4}, {8}}})});
  CHECK(values(tokens.grad()) == Floats{1, 0, 14});
  CHECK(values(positions.grad()) == Floats{11, 0, 0, 4});
}

TEST_CASE("values: conversions of type are differentiable") {
  const Tensor x = leaf(tensor<float>({1, 2}));
  Tape tape;
  const Tensor y = x.to(DType::float64) * 0.1;
  CHECK(y.dtype() == DType::float64);
  tape.backward(sum(y));
  CHECK(x.grad().dtype() == DType::float32);
  CHECK(values(x.grad()) == Floats{0.1F, 0.1F});
}

TEST_CASE("NUM-02: the gradient of cross-entropy keeps its digits where logits are large") {
  for (const float size : {1e3F, 1e6F, 1e8F}) {
    const Tensor logits = leaf(tensor<float>({{size, size}, {-size, -size}}));
    Tape tape;
    const Tensor loss = cross_entropy(logits, tensor<std::int64_t>({0, 1}));
    CHECK(loss.item() == Approx(std::log(2.0)));
    tape.backward(loss);
    const auto grad = values(logits.grad());
    for (std::size_t i = 0; i < 4; ++i) CHECK(grad[i] == Approx(i == 0 || i == 3 ? -0.25 : 0.25));
  }
}

TEST_CASE("values: neg exchanges the zeros, on every backend") {
  const auto got = values(-tensor<float>({0.0F, -0.0F, 3, -infinity}));
  CHECK(std::signbit(got[0]));
  CHECK_FALSE(std::signbit(got[1]));
  CHECK(got[2] == -3);
  CHECK(got[3] == infinity);
}
