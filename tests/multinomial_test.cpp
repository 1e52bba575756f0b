// multinomial: its distribution, its draws, what it refuses.

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <string>

#include "wengert/ops.hpp"
#include "wengert/random.hpp"

using namespace wengert;
using doctest::Approx;

namespace {

using Values = std::vector<double>;

Tensor floats(const Values& values, const Shape& shape) { return tensor(values, shape).to(DType::float32); }
Tensor floats(const Values& values) { return floats(values, {static_cast<std::int64_t>(values.size())}); }

constexpr double infinite = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

}  // namespace

TEST_CASE("multinomial follows the weights, with and without replacement") {
  Generator generator(3);
  const Values weights{1, 0, 2, 5, 0};
  const std::int64_t draws = 20000;
  const auto with = multinomial(floats(weights), draws, true, generator).to_vector<std::int64_t>();
  Values counts(5, 0.0);
  for (const std::int64_t i : with) counts[static_cast<std::size_t>(i)] += 1;
  for (std::size_t i = 0; i < 5; ++i) {
    const double share = weights[i] / 8;
    CHECK(std::abs(counts[i] / draws - share) <= 5 * std::sqrt(share * (1 - share) / draws));
  }
  // Without replacement: the first draw follows the weights, the second those that are left.
  Values rows;
  for (int i = 0; i < draws; ++i) rows.insert(rows.end(), weights.begin(), weights.end());
  const Tensor without = multinomial(floats(rows, {draws, 5}), 2, false, generator);
  CHECK(without.shape() == Shape{draws, 2});
  CHECK(without.dtype() == DType::int64);
  const auto pairs = without.to_vector<std::int64_t>();
  Values first(5, 0.0), second_after_three(5, 0.0);
  for (std::size_t i = 0; i < pairs.size(); i += 2) {
    CHECK(pairs[i] != pairs[i + 1]);
    first[static_cast<std::size_t>(pairs[i])] += 1;
    if (pairs[i] == 3) second_after_three[static_cast<std::size_t>(pairs[i + 1])] += 1;
  }
  CHECK(first[1] + first[4] == 0);
  CHECK(first[3] / draws == Approx(5.0 / 8).epsilon(0.03));
  CHECK(second_after_three[2] / first[3] == Approx(2.0 / 3).epsilon(0.03));
  CHECK(second_after_three[0] / first[3] == Approx(1.0 / 3).epsilon(0.05));
  // All that can be drawn.
  const auto all = multinomial(floats({3, 1, 2}), 3, false, generator).to_vector<std::int64_t>();
  CHECK(std::set<std::int64_t>(all.begin(), all.end()) == std::set<std::int64_t>{0, 1, 2});
}

TEST_CASE("multinomial: the same draws on every backend, and new ones each time") {
  const auto draw = [](const std::string& name, bool replacement) {
    const BackendScope use(name);
    Generator generator(9);
    const Tensor weights = floats({0.1, 0.7, 0.3, 0.9, 0.2, 0.5, 0.5, 0.1}, {2, 4});
    const Tensor drawn = multinomial(weights, 3, replacement, generator);
    CHECK(drawn.backend().name() == name);
    std::vector<std::int64_t> values = drawn.to_vector<std::int64_t>();
    for (const std::int64_t more : multinomial(weights, 3, replacement, generator).to_vector<std::int64_t>())
      values.push_back(more);
    return values;
  };
  for (const bool replacement : {true, false}) {
    const auto here = draw(std::string(current_backend().name()), replacement);
    CHECK(here == draw("reference", replacement));
    CHECK(!std::equal(here.begin(), here.begin() + 6, here.begin() + 6));
  }
}

TEST_CASE("multinomial: what it refuses, before anything is drawn") {
  const std::uint64_t before = default_generator().state().counter;
  CHECK_THROWS_WITH_AS(multinomial(floats({1, 2}), 0), "multinomial: num_samples is 0; it must be positive",
                       ValueError);
  CHECK_THROWS_WITH_AS(multinomial(floats({1, -2}), 1),
                       "multinomial: weight -2 at [0, 1] must be finite and not negative", ValueError);
  CHECK_THROWS_AS(multinomial(ones({3}), INT64_MAX, true), Error);
  CHECK_THROWS_AS(multinomial(ones({3}), std::int64_t{1} << 61, true), Error);
  CHECK_THROWS_WITH_AS(multinomial(full({4}, 1e308, DType::float64), 1),
                       "multinomial: the weights of row 0 add up to more than a double holds", ValueError);
  CHECK_THROWS_AS(multinomial(floats({1, not_a_number}), 1), ValueError);
  CHECK_THROWS_AS(multinomial(floats({1, infinite}), 1), ValueError);
  CHECK_THROWS_WITH_AS(multinomial(floats({1, 1, 0, 0}, {2, 2}), 1, true),
                       "multinomial: row 1 has 0 weights above 0, needs 1 at least", ValueError);
  CHECK_THROWS_WITH_AS(multinomial(floats({1, 0, 3}), 3), "multinomial: row 0 has 2 weights above 0, needs 3 at least",
                       ValueError);
  CHECK_THROWS_AS(multinomial(zeros({0}), 1, true), ValueError);
  CHECK_THROWS_WITH_AS(multinomial(ones({1, 1, 1}), 1),
                       "multinomial: probabilities must have shape (n) or (rows, n), got [1, 1, 1]", ShapeError);
  CHECK_THROWS_AS(multinomial(ones({2}, DType::int64), 1), DTypeError);
  CHECK(default_generator().state().counter == before);
}
