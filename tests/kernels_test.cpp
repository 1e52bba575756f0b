// The pure kernels outside the embedding stack, on the current backend, against plain loops in double.

#include <doctest/doctest.h>

#include <array>
#include <cmath>

#include "kernel_tools.hpp"
#include "same_bits.hpp"
#include "wengert/kernels.hpp"

namespace wg = wengert;
using wg::DType;
using wg::Shape;
using wg::Tensor;
using wg::testing::random_values;

namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

using wengert::testing::kernels;
using wengert::testing::unwritten;
using wengert::testing::upload;
std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

template <class T>
constexpr double epsilon = std::numeric_limits<T>::epsilon();

template <class T>
bool close(double got, double wanted, double tolerance) {
  return (std::isnan(got) && std::isnan(wanted)) || got == wanted || std::abs(got - wanted) <= tolerance * epsilon<T>;
}

template <class T>
void check_matmul(wg::Matmul s) {
  const std::int64_t a_count = (s.share_a ? 1 : s.batch) * s.m * s.k, b_count = (s.share_b ? 1 : s.batch) * s.k * s.n;
  const auto a = random_values<T>(a_count, 1), b = random_values<T>(b_count, 2),
             before = random_values<T>(s.batch * s.m * s.n, 3);
  const Shape a_shape{s.share_a ? 1 : s.batch, s.trans_a ? s.k : s.m, s.trans_a ? s.m : s.k};
  const Shape b_shape{s.share_b ? 1 : s.batch, s.trans_b ? s.n : s.k, s.trans_b ? s.k : s.n};
  const Shape shape{s.batch, s.m, s.n};
  Tensor out = s.beta == 0.0 ? unwritten<T>(shape) : upload(before, shape);
  kernels<T>().matmul(s, upload(a, a_shape), upload(b, b_shape), out);
  const auto got = out.to_vector<T>();
  bool good = true;
  for (std::int64_t z = 0; z < s.batch; ++z)
    for (std::int64_t i = 0; i < s.m; ++i)
      for (std::int64_t j = 0; j < s.n; ++j) {
        double sum = 0, size = 0;
        for (std::int64_t k = 0; k < s.k; ++k) {
          const std::int64_t ai = (s.share_a ? 0 : z * s.m * s.k) + (s.trans_a ? k * s.m + i : i * s.k + k);
          const std::int64_t bi = (s.share_b ? 0 : z * s.k * s.n) + (s.trans_b ? j * s.k + k : k * s.n + j);
          sum += static_cast<double>(a[at(ai)]) * static_cast<double>(b[at(bi)]);
          size += std::abs(static_cast<double>(a[at(ai)]) * static_cast<double>(b[at(bi)]));
        }
        const std::size_t e = at((z * s.m + i) * s.n + j);
        const double old = s.beta == 0.0 ? 0.0 : s.beta * static_cast<double>(before[e]);
        const double bound = (2.0 + std::sqrt(static_cast<double>(s.k))) * (std::abs(s.alpha) * size + std::abs(old));
        good = good && close<T>(static_cast<double>(got[e]), s.alpha * sum + old, bound);
      }
  CHECK(good);
}

}  // namespace

TEST_CASE_TEMPLATE("matmul agrees with double sums for every layout, alpha and beta", T, float, double) {
  for (const bool trans_a : {false, true})
    for (const bool trans_b : {false, true}) {
      for (const std::int64_t m : {1, 3, 4, 5, 17})
        for (const std::int64_t n : {1, 3, 17})
          for (const std::int64_t k : {0, 1, 3, 4, 7, 65, 130}) check_matmul<T>({1, m, n, k, trans_a, trans_b});
      check_matmul<T>({1, 6, 515, 70, trans_a, trans_b});      // more columns than a panel
      check_matmul<T>({1, 19, 1100, 1300, trans_a, trans_b});  // more than one piece, of columns and of depth
      check_matmul<T>({1, 1100, 19, 1300, trans_a, trans_b});
      for (const bool share_a : {false, true})
        for (const bool share_b : {false, true})
          for (const double alpha : {1.0, -0.5})
            for (const double beta : {0.0, 1.0, 0.25})
              check_matmul<T>({3, 5, 7, 9, trans_a, trans_b, share_a, share_b, alpha, beta});
      check_matmul<T>({0, 5, 7, 9, trans_a, trans_b});
      check_matmul<T>({2, 0, 7, 9, trans_a, trans_b});
      check_matmul<T>({2, 5, 0, 9, trans_a, trans_b});
    }
}

TEST_CASE_TEMPLATE("matmul hands on NaN and infinities", T, float, double) {
  Tensor out = unwritten<T>({1, 2, 2});
  kernels<T>().matmul({1, 2, 2, 2}, wg::tensor<T>({{T(0), T(1)}, {T(2), T(3)}}),
                      wg::tensor<T>({{T(not_a_number), T(1)}, {T(1), T(infinite)}}), out);
  const auto got = out.template to_vector<T>();
  CHECK(std::isnan(got[0]));
  CHECK(got[1] == T(infinite));
  CHECK(std::isnan(got[2]));
}

TEST_CASE_TEMPLATE("binary broadcasts axes of every pattern", T, float, double) {
  struct Pattern {
    Shape out, a, b;
  };
  const Pattern patterns[] = {
      {{2, 3, 4}, {2, 3, 4}, {2, 3, 4}},
      {{2, 3, 4}, {2, 3, 4}, {4}},
      {{2, 3, 4}, {3, 1}, {2, 3, 4}},
      {{2, 3, 40}, {2, 1, 40}, {3, 1}},
      {{2, 3, 4}, {}, {2, 3, 4}},
      {{2, 3, 4}, {1, 1, 1}, {1}},
      {{5, 33}, {5, 1}, {1, 33}},
      {{5, 33}, {5, 33}, {5, 1}},
      {{2, 3, 4, 5, 2, 3}, {3, 1, 5, 1, 3}, {2, 1, 4, 1, 2, 1}},
      {{}, {}, {}},
      {{0, 4}, {1, 4}, {0, 1}},
      {{2, 0}, {2, 1}, {1, 0}},
      {{7, 1, 20}, {7, 1, 1}, {20}},
      {{1, 2, 1, 2, 1, 2, 1, 2}, {2}, {2, 1, 1, 1, 1, 1, 2}},
  };
  for (const Pattern& pattern : patterns) {
    CAPTURE(pattern.out.str());
    const auto a = random_values<T>(pattern.a.numel(), 4), b = random_values<T>(pattern.b.numel(), 5);
    Tensor out = unwritten<T>(pattern.out);
    kernels<T>().binary(wg::Binary::sub, upload(a, pattern.a), upload(b, pattern.b), out);
    std::vector<T> wanted(at(pattern.out.numel()));
    for (std::int64_t e = 0; e < pattern.out.numel(); ++e) {
      // Index of an operand: its own axes, counted from the last, at the place of e.
      const auto place = [&](const Shape& shape) {
        std::int64_t rest = e, index = 0, stride = 1;
        for (std::int64_t axis = 1; axis <= pattern.out.rank(); ++axis) {
          const std::int64_t extent = pattern.out[pattern.out.rank() - axis], i = rest % extent;
          rest /= extent;
          if (axis > shape.rank()) continue;
          if (shape[shape.rank() - axis] != 1) index += i * stride;
          stride *= shape[shape.rank() - axis];
        }
        return at(index);
      };
      wanted[at(e)] = a[place(pattern.a)] - b[place(pattern.b)];
    }
    CHECK_SAME_BITS(out.template to_vector<T>(), wanted);
  }
}

TEST_CASE_TEMPLATE("binary and unary work in place", T, float, double) {
  const auto x = random_values<T>(37, 6);
  Tensor t = upload(x, {37});
  kernels<T>().binary(wg::Binary::add, t, t, t);
  kernels<T>().unary(wg::Unary::mul_scalar, t, 0.5, t);
  CHECK_SAME_BITS(t.template to_vector<T>(), x);
}

TEST_CASE_TEMPLATE("unary functions at special values", T, float, double) {
  const auto apply = [](wg::Unary op, double value, double scalar = 0) {
    Tensor x = wg::full({}, value, wg::dtype_of<T>), out = unwritten<T>({});
    kernels<T>().unary(op, x, scalar, out);
    return out.template item<double>();
  };
  CHECK(std::isnan(apply(wg::Unary::relu, not_a_number)));
  CHECK(apply(wg::Unary::relu, -3) == 0);
  CHECK(apply(wg::Unary::relu, 3) == 3);
  CHECK(apply(wg::Unary::exp, -infinite) == 0);
  CHECK(apply(wg::Unary::log, 0) == -infinite);
  CHECK(std::isnan(apply(wg::Unary::log, -1)));
  CHECK(std::isnan(apply(wg::Unary::sqrt, -1)));
  CHECK(apply(wg::Unary::tanh, 100) == 1);
  CHECK(apply(wg::Unary::rsub_scalar, 2, 5) == 3);
  CHECK(apply(wg::Unary::rdiv_scalar, 2, 5) == 2.5);
  CHECK(apply(wg::Unary::div_scalar, 5, 2) == 2.5);
  CHECK(apply(wg::Unary::add_scalar, 5, 2) == 7);
  CHECK(apply(wg::Unary::neg, 5) == -5);
  CHECK(apply(wg::Unary::square, -5) == 25);
  CHECK(apply(wg::Unary::clamp, 0.1, 0.7) == static_cast<T>(0.1));
  CHECK(apply(wg::Unary::clamp, infinite, 2) == 2);
  CHECK(apply(wg::Unary::clamp, -5, 2) == -2);
  CHECK(std::isnan(apply(wg::Unary::clamp, not_a_number, 2)));
}

TEST_CASE_TEMPLATE("max and argmax: the first maximum, and NaN is larger than any number", T, float, double) {
  const std::vector<T> rows{T(1),         T(3),
                            T(3),         T(-infinite),
                            T(-infinite), T(-infinite),
                            T(1),         T(not_a_number),
                            T(infinite),  T(not_a_number),
                            T(5),         T(not_a_number)};
  Tensor best = unwritten<T>({4}), where = wg::empty({4}, DType::int64);
  kernels<T>().reduce(wg::Reduce::max, {4, 3, 1}, upload(rows, {4, 3}), best);
  kernels<T>().argmax({4, 3, 1}, upload(rows, {4, 3}), where);
  CHECK_SAME_BITS(best.template to_vector<T>(), (std::vector<T>{T(3), T(-infinite), T(not_a_number), T(not_a_number)}));
  CHECK(where.template to_vector<std::int64_t>() == std::vector<std::int64_t>{1, 0, 1, 0});
  Tensor columns = unwritten<T>({3}), places = wg::empty({3}, DType::int64);  // over the first axis of the same values
  kernels<T>().reduce(wg::Reduce::max, {1, 4, 3}, upload(rows, {4, 3}), columns);
  kernels<T>().argmax({1, 4, 3}, upload(rows, {4, 3}), places);
  CHECK_SAME_BITS(columns.template to_vector<T>(), (std::vector<T>{T(not_a_number), T(not_a_number), T(not_a_number)}));
  CHECK(places.template to_vector<std::int64_t>() == std::vector<std::int64_t>{3, 2, 3});
}

TEST_CASE_TEMPLATE("sum_squares adds up in double", T, float, double) {
  for (const std::int64_t count : {0, 1, 31, 32, 33, 257, 5000}) {
    const auto x = random_values<T>(count, 7);
    Tensor out = wg::empty({}, DType::float64);
    kernels<T>().sum_squares(upload(x, {count}), out);
    const double wanted = wg::bits::tree_sum<double>(count, [&](std::int64_t i) {
      const double v = static_cast<double>(x[at(i)]);
      return v * v;
    });
    CHECK(out.template item<double>() == wanted);
  }
}

TEST_CASE_TEMPLATE("softmax and its logarithm", T, float, double) {
  for (const std::int64_t n : {1, 3, 17, 300}) {
    const auto x = random_values<T>(4 * n, 8);
    for (const bool log : {false, true}) {
      Tensor out = unwritten<T>({4, n});
      kernels<T>().softmax(upload(x, {4, n}), log, out);
      const auto got = out.template to_vector<T>();
      bool good = true;
      for (std::int64_t r = 0; r < 4; ++r) {
        double sum = 0;
        for (std::int64_t c = 0; c < n; ++c) sum += std::exp(static_cast<double>(x[at(r * n + c)]));
        for (std::int64_t c = 0; c < n; ++c) {
          const double value = static_cast<double>(x[at(r * n + c)]);
          good = good && close<T>(static_cast<double>(got[at(r * n + c)]),
                                  log ? value - std::log(sum) : std::exp(value) / sum, 2000);
        }
      }
      CHECK(good);
    }
  }
  const std::vector<T> extreme{T(1000), T(0),         T(-1000), T(-infinite),    T(-infinite), T(-infinite),
                               T(0),    T(-infinite), T(0),     T(not_a_number), T(0),         T(0)};
  Tensor out = unwritten<T>({4, 3});
  kernels<T>().softmax(upload(extreme, {4, 3}), false, out);
  CHECK_SAME_BITS(out.template to_vector<T>(),
                  (std::vector<T>{1, 0, 0, T(not_a_number), T(not_a_number), T(not_a_number), T(0.5), 0, T(0.5),
                                  T(not_a_number), T(not_a_number), T(not_a_number)}));
}

TEST_CASE_TEMPLATE("NUM-02: cross_entropy and its gradient", T, float, double) {
  const std::vector<T> logits{T(1), T(2), T(3), T(1000), T(0), T(-1000), T(not_a_number), T(0), T(0)};
  const auto labels = wg::tensor<std::int64_t>({2, 2, -100});
  Tensor loss = unwritten<T>({3}), norms = unwritten<T>({3, 2}), grad = unwritten<T>({3, 3});
  kernels<T>().cross_entropy({}, upload(logits, {3, 3}), labels, loss, norms);
  const auto losses = loss.template to_vector<T>();
  CHECK(close<T>(static_cast<double>(losses[0]), std::log(std::exp(-2.0) + std::exp(-1.0) + 1.0), 4));
  CHECK(losses[1] == T(2000));
  CHECK(wg::testing::same_bits(losses[2], T(0)));
  kernels<T>().cross_entropy_backward({}, upload(std::vector<T>{2, 1, 1}, {3}), upload(logits, {3, 3}), labels, norms,
                                      grad);
  const auto g = grad.template to_vector<T>();
  const double total = std::exp(1.0) + std::exp(2.0) + std::exp(3.0);
  for (std::size_t c = 0; c < 3; ++c)
    CHECK(close<T>(static_cast<double>(g[c]), 2 * (std::exp(1.0 + static_cast<double>(c)) / total - (c == 2 ? 1 : 0)),
                   16));
  CHECK(g[3] == T(1));
  CHECK(g[5] == T(-1));
  for (std::size_t e = 6; e < 9; ++e) CHECK(wg::testing::same_bits(g[e], T(0)));
}

TEST_CASE("copy_strided permutes, slices, expands and casts") {
  wg::Kernels& k = kernels<float>();
  const Tensor x = wg::arange(0, 60 * 70, DType::float32);
  const auto strided = [](std::int64_t offset, std::initializer_list<std::int64_t> strides) {
    wg::StridedView view{offset, {}};
    std::copy(strides.begin(), strides.end(), view.strides);
    return view;
  };
  Tensor out = wg::full({70, 60}, not_a_number);
  k.copy_strided({70, 60}, x, strided(0, {1, 70}), out, strided(0, {60, 1}));
  auto got = out.to_vector<float>();
  bool good = true;
  for (std::int64_t i = 0; i < 70; ++i)
    for (std::int64_t j = 0; j < 60; ++j) good = good && got[at(i * 60 + j)] == static_cast<float>(j * 70 + i);
  CHECK(good);

  Tensor cube = wg::zeros({4, 3, 5}, DType::int32);  // a permuted block of x, cast, written into the middle of another
  k.copy_strided({2, 3, 2}, x, strided(7, {1, 140, 70}), cube, strided(1 * 15 + 2, {15, 5, 1}));
  const auto values = cube.to_vector<std::int32_t>();
  for (std::int64_t i = 0; i < 2; ++i)
    for (std::int64_t j = 0; j < 3; ++j)
      for (std::int64_t c = 0; c < 2; ++c)
        CHECK(values[at(15 + 2 + i * 15 + j * 5 + c)] == static_cast<std::int32_t>(7 + i + 140 * j + 70 * c));
  CHECK(std::count(values.begin(), values.end(), 0) == 60 - 12);

  Tensor wide = wg::full({3, 4}, not_a_number);  // expand a column
  k.copy_strided({3, 4}, wg::tensor<float>({1, 2, 3}), strided(0, {1, 0}), wide, strided(0, {4, 1}));
  CHECK(wide.to_vector<float>() == std::vector<float>{1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3});
  Tensor one = wg::full({}, not_a_number);
  k.copy_strided({}, x, strided(9, {}), one, strided(0, {}));
  CHECK(one.item() == 9);
  k.copy_strided({0, 3}, x, strided(0, {3, 1}), wide, strided(0, {3, 1}));
  CHECK(wide.to_vector<float>()[0] == 1);
}

TEST_CASE("fill, iota and casts of every type") {
  wg::Kernels& k = kernels<float>();
  for (const DType dtype : {DType::float32, DType::float64, DType::int32, DType::int64}) {
    Tensor out = wg::empty({5}, dtype);
    k.fill(out, -7);
    CHECK(out.to_vector<double>() == std::vector<double>(5, -7.0));
  }
  Tensor ids = wg::empty({4}, DType::int64);
  k.iota(ids, 3);
  CHECK(ids.to_vector<std::int64_t>() == std::vector<std::int64_t>{3, 4, 5, 6});
  Tensor integers = wg::empty({6}, DType::int32);  // towards zero; outside the type, the nearest there is
  wg::StridedView line{0, {1}};
  k.copy_strided({6}, upload(std::vector<double>{2.9, -2.9, 1e20, -infinite, not_a_number, 7}, {6}), line, integers,
                 line);
  CHECK(integers.to_vector<std::int32_t>() == std::vector<std::int32_t>{2, -2, INT32_MAX, INT32_MIN, 0, 7});
}

TEST_CASE("id_range finds the smallest and the largest") {
  wg::Kernels& k = kernels<float>();
  const auto ids = wg::tensor<std::int64_t>({3, -100, 7, 5});
  CHECK(k.id_range(ids, {}).smallest == -100);
  CHECK(k.id_range(ids, -100).smallest == 3);
  CHECK(k.id_range(ids, -100).largest == 7);
  CHECK(k.id_range(wg::empty({0}, DType::int64), {}).within(0));
  CHECK(k.id_range(wg::tensor<std::int64_t>({INT64_MIN, INT64_MAX}), {}).smallest == INT64_MIN);
}
