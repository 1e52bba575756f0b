// BK-01: oneDNN's primitives made in one thread and run in others.

#include <doctest/doctest.h>

#include <thread>

#include "same_bits.hpp"
#include "wengert/backend.hpp"
#include "wengert/ops.hpp"
#include "wengert/random.hpp"

namespace wg = wengert;
using wg::DType;
using wg::Tensor;

namespace {

struct Operands {
  Tensor a, b;
  explicit Operands(std::uint64_t seed) {
    wg::Generator generator(seed);
    a = wg::randn({40, 70}, DType::float32, generator);
    b = wg::randn({70, 90}, DType::float32, generator);
  }
  std::vector<float> product() const { return wg::matmul(a, b).to_vector<float>(); }
};

}  // namespace

TEST_CASE("BK-01: one primitive, eight threads, each with operands of its own") {
  if (!wg::backend_available("onednn")) return;
  std::vector<std::vector<float>> expected;
  std::thread([&] {  // made in a thread that ends before the others begin
    const wg::BackendScope use("onednn");
    for (std::uint64_t i = 0; i < 8; ++i) expected.push_back(Operands(i).product());
  })
      .join();
  std::vector<int> wrong(8);
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < 8; ++i)
    threads.emplace_back([&, i] {
      const wg::BackendScope use("onednn");
      const Operands operands(i);
      for (int run = 0; run < 1000; ++run)
        if (wengert::testing::first_difference(operands.product(), expected[i]) != -1) ++wrong[i];
    });
  for (std::thread& thread : threads) thread.join();
  for (const int count : wrong) CHECK(count == 0);
}

TEST_CASE("BK-01: inside somebody's parallel region") {
  if (!wg::backend_available("onednn")) return;
  const wg::BackendScope use("onednn");
  const auto expected = Operands(1).product();
  int wrong = 0;
#pragma omp parallel for num_threads(2) reduction(+ : wrong)
  for (int i = 0; i < 50; ++i) {
    const wg::BackendScope inside("onednn");
    if (wengert::testing::first_difference(Operands(1).product(), expected) != -1) ++wrong;
  }
  CHECK(wrong == 0);
}

TEST_CASE("addition by oneDNN has the bits of one addition") {
  if (!wg::backend_available("onednn")) return;
  const auto a = wengert::testing::special_values<float>(60'000, 1),
             b = wengert::testing::random_values<float>(60'000, 2);
  for (const wg::Shape& other : {wg::Shape{200, 300}, wg::Shape{300}}) {
    const auto run = [&](const char* name) {
      const wg::BackendScope use(name);
      const std::vector<float> part(b.begin(), b.begin() + other.numel());
      return (wg::tensor(a, {200, 300}) + wg::tensor(part, other)).to_vector<float>();
    };
    CHECK_SAME_BITS(run("onednn"), run("reference"));
  }
}
