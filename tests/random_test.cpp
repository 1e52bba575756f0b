// Generators and initialisers.

#include <doctest/doctest.h>

#include <cmath>
#include <thread>

#include "wengert/backend.hpp"
#include "wengert/ops.hpp"
#include "wengert/random.hpp"
#include "wengert/tape.hpp"

namespace wg = wengert;
using wg::DType;
using wg::Generator;
using wg::Tensor;

namespace {

struct Moments {
  double mean = 0, variance = 0, skew = 0;
};
Moments moments(const Tensor& x) {
  Moments m;
  const auto values = x.to_vector<double>();
  for (double v : values) m.mean += v / static_cast<double>(values.size());
  for (double v : values) m.variance += (v - m.mean) * (v - m.mean) / static_cast<double>(values.size());
  for (double v : values)
    m.skew += std::pow((v - m.mean) / std::sqrt(m.variance), 3) / static_cast<double>(values.size());
  return m;
}

constexpr std::int64_t many = 200'001;  // odd: the last pair is used by half

}  // namespace

TEST_CASE("a generator repeats from its seed, and hands out each block once") {
  Generator a(7), b(7);
  CHECK(wg::randn({5}, DType::float64, a).to_vector<double>() == wg::randn({5}, DType::float64, b).to_vector<double>());
  CHECK(a.state().counter == 3);
  Generator fresh(7);
  CHECK(wg::randn({5}, DType::float64, a).to_vector<double>() !=
        wg::randn({5}, DType::float64, fresh).to_vector<double>());
  const auto saved = b.state();
  const auto first = wg::rand({9}, DType::float32, b).to_vector<float>();
  b.set_state(saved);
  CHECK(wg::rand({9}, DType::float32, b).to_vector<float>() == first);
  const auto first_block = a.reserve(5).counter;
  CHECK(a.reserve(1).counter == first_block + 5);
}

TEST_CASE("DRP-04: streams (ranks) of one seed are independent") {
  Generator rank0(3, 0), rank1(3, 1);
  const auto a = wg::randn({1000}, DType::float64, rank0).to_vector<double>();
  const auto b = wg::randn({1000}, DType::float64, rank1).to_vector<double>();
  double dot = 0;
  for (std::size_t i = 0; i < a.size(); ++i) dot += a[i] * b[i] / 1000;
  CHECK(std::abs(dot) < 5 / std::sqrt(1000.0));
}

TEST_CASE("manual_seed restarts the default generator; a scope replaces it for one thread") {
  wg::manual_seed(11);
  const auto a = wg::randn({4}).to_vector<float>();
  wg::manual_seed(11);
  Generator own(99);
  {
    const wg::GeneratorScope use(own);
    wg::randn({4});
    std::uint64_t seen = 0;
    std::thread([&] { seen = wg::default_generator().state().seed; }).join();
    CHECK(seen == 11);
  }
  CHECK(own.state().counter == 2);
  CHECK(wg::randn({4}).to_vector<float>() == a);
}

TEST_CASE("normal values have the moments they should") {
  Generator generator(1);
  Tensor x = wg::randn({many}, DType::float64, generator);
  const Moments m = moments(x);
  CHECK(std::abs(m.mean) < 5 / std::sqrt(double(many)));
  CHECK(std::abs(m.variance - 1) < 5 * std::sqrt(2.0 / double(many)));
  CHECK(std::abs(m.skew) < 5 * std::sqrt(6.0 / double(many)));
  wg::normal_(x, 3, 0.5, generator);
  CHECK(moments(x).mean == doctest::Approx(3).epsilon(0.01));
  CHECK(moments(x).variance == doctest::Approx(0.25).epsilon(0.02));
  CHECK_THROWS_AS(wg::normal_(x, 0, -1), wg::ValueError);
}

TEST_CASE("uniform values stay in their half-open range") {
  Generator generator(2);
  Tensor x = wg::rand({many}, DType::float32, generator);
  double smallest = 1, largest = 0;
  for (double v : x.to_vector<double>()) smallest = std::min(smallest, v), largest = std::max(largest, v);
  CHECK(smallest >= 0);
  CHECK(largest < 1);
  CHECK(moments(x).mean == doctest::Approx(0.5).epsilon(0.01));
  CHECK(moments(x).variance == doctest::Approx(1.0 / 12).epsilon(0.02));
  wg::uniform_(x, 1.0, std::nextafter(1.0F, 2.0F), generator);  // a range of a single float
  for (double v : x.to_vector<double>()) REQUIRE(v == 1.0);
  CHECK_THROWS_AS(wg::uniform_(x, 2, 1), wg::ValueError);
}

TEST_CASE("truncated normal values stay inside, and keep the shape of the middle") {
  Generator generator(3);
  Tensor x = wg::zeros({many}, DType::float64);
  wg::trunc_normal_(x, 0, 1, -2, 2, generator);
  for (double v : x.to_vector<double>()) REQUIRE(std::abs(v) <= 2);
  CHECK(moments(x).variance == doctest::Approx(0.77374).epsilon(0.02));  // 1 - 4 phi(2) / (2 Phi(2) - 1)
  CHECK_THROWS_AS(wg::trunc_normal_(x, 0, 1, 9, 10), wg::ValueError);
  CHECK_THROWS_AS(wg::trunc_normal_(x, 0, 0, -1, 1), wg::ValueError);
}

TEST_CASE("random integers cover their range evenly") {
  Generator generator(4);
  const Tensor x = wg::randint(-3, 4, {70'000}, generator);
  CHECK(x.dtype() == DType::int64);
  std::vector<int> counts(7);
  for (auto v : x.to_vector<std::int64_t>()) ++counts.at(static_cast<std::size_t>(v + 3));
  for (int count : counts) CHECK(std::abs(count - 10'000) < 500);
  CHECK_THROWS_AS(wg::randint(3, 3, {1}), wg::ValueError);
}

TEST_CASE("initialisers work on leaves, under a tape, and refuse integers") {
  Tensor w = wg::zeros({3}).set_requires_grad();
  const wg::Tape tape;
  wg::normal_(w);
  CHECK(tape.size() == 0);
  Tensor ids = wg::arange(0, 3);
  CHECK_THROWS_AS(wg::normal_(ids), wg::DTypeError);
  CHECK_THROWS_AS(wg::randn({2}, DType::int32), wg::DTypeError);
}

TEST_CASE("the same seed gives the same values on every backend") {
  std::vector<std::vector<float>> values;
  for (const std::string& name : wg::backend_names()) {
    if (!wg::backend_available(name)) continue;
    const wg::BackendScope use(name);
    Generator generator(5);
    values.push_back(wg::randn({33}, DType::float32, generator).to_vector<float>());
  }
  for (const auto& other : values) CHECK(other == values.front());
}

TEST_CASE("the chapter's table: NumPy's seed(42); randn(128, 64) / sqrt(64), bit for bit") {
  const Tensor table = wg::numpy_randn(42, {128, 64}) / std::sqrt(64.0);
  const auto values = table.to_vector<double>();
  CHECK(values.front() == 0x1.fca2a28a9307cp-5);
  CHECK(values.back() == -0.05125367644236385);
  const double printed[5][5] = {{0.062, -0.017, 0.081, 0.19, -0.029},
                                {0.102, 0.17, -0.009, 0.125, 0.045},
                                {0.012, -0.063, -0.194, 0.009, -0.133},
                                {0.027, -0.156, 0.022, 0.048, -0.11},
                                {0.158, -0.088, 0.055, 0.097, -0.116}};
  for (std::size_t row = 0; row < 5; ++row)
    for (std::size_t column = 0; column < 5; ++column)
      CHECK(std::round(values[row * 64 + column] * 1000) / 1000 == printed[row][column]);
}
