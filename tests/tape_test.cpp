// The tape: what is recorded, what a backward pass does and refuses, and what is left afterwards.

#include <doctest/doctest.h>
#include <pthread.h>

#include <cmath>
#include <stdexcept>

#include "wengert/kernels.hpp"
#include "wengert/ops.hpp"
#include "wengert/tape.hpp"

namespace wg = wengert;
using wg::DType;
using wg::Tape;
using wg::Tensor;

namespace {

Tensor leaf(const std::vector<double>& values, const wg::Shape& shape = {}) {
  return wg::tensor(values, shape.rank() == 0 && values.size() != 1
                                ? wg::Shape{static_cast<std::int64_t>(values.size())}
                                : shape)
      .set_requires_grad();
}

// Runs `body` on a thread with a stack of 512 KiB.
void on_small_stack(void (*body)()) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  REQUIRE(pthread_attr_setstacksize(&attributes, 512 * 1024) == 0);
  pthread_t thread;
  REQUIRE(pthread_create(
              &thread, &attributes,
              [](void* f) -> void* {
                reinterpret_cast<void (*)()>(f)();
                return nullptr;
              },
              reinterpret_cast<void*>(body)) == 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

constexpr int depth = 1'000'000;

Tensor long_chain(const Tensor& x) {
  Tensor y = x;
  const Tensor small = leaf({1e-6});
  for (int i = 0; i < depth / 2; ++i) y = y + y * small;  // two operations; mul saves both its operands
  return y;
}

}  // namespace

TEST_CASE("promise 1: no tape, no recording") {
  const Tensor w = leaf({1, 2});
  const Tensor y = wg::sum(w * w);
  CHECK_FALSE(y.requires_grad());
  CHECK_FALSE(wg::recording());
  CHECK(wg::live_nodes() == 0);
  Tape tape;
  CHECK(wg::recording());
  CHECK_THROWS_WITH_AS(tape.backward(y), doctest::Contains("does not depend on anything that requires grad"),
                       wg::TapeError);
}

TEST_CASE("AG-01: a chain of 1,000,000 operations on a stack of 512 KiB") {
  on_small_stack([] {
    const Tensor x = leaf({1});
    {  // (a) dropped without a backward
      Tape tape;
      const Tensor y = long_chain(x);
      CHECK(tape.size() == depth);
    }
    CHECK(wg::live_nodes() == 0);
    {  // (b) backward
      Tape tape;
      tape.backward(long_chain(x));
    }
    CHECK(wg::live_nodes() == 0);
    CHECK(x.grad().item() == doctest::Approx(std::pow(1 + 1e-6, depth / 2)).epsilon(1e-9));
    try {  // (c) left by an exception
      Tape tape;
      const Tensor y = long_chain(x);
      throw std::runtime_error("in the middle");
    } catch (const std::runtime_error&) {
    }
    CHECK(wg::live_nodes() == 0);
  });
}

TEST_CASE("AG-03: shared values are neither missed nor doubled") {
  {
    const Tensor x = leaf({2});
    Tape tape;
    const Tensor y = 3 * x;
    tape.backward(2 * y + 5 * y);
    CHECK(x.grad().item() == 21);
  }
  {
    const Tensor a = leaf({1});
    Tape tape;
    const Tensor b = a + a, c = b + b;
    tape.backward(c);
    CHECK(a.grad().item() == 4);
  }
  {
    const Tensor x = leaf({3});
    Tape tape;
    tape.backward(x * x);
    CHECK(x.grad().item() == 6);
  }
  {
    const Tensor x = leaf({1});
    Tape tape;
    Tensor p = x;
    for (int level = 0; level < 60; ++level) p = 0.5 * p + 0.5 * p;
    tape.backward(p);
    CHECK(x.grad().item() == 1);
  }
}

TEST_CASE("AG-05: a second backward needs keep_graph, and then doubles") {
  const Tensor x = leaf({3});
  {
    Tape tape;
    const Tensor loss = x * x;
    tape.backward(loss);
    CHECK_THROWS_WITH_AS(tape.backward(loss),
                         "backward: mul was consumed by an earlier backward; pass keep_graph = true to the first one",
                         wg::TapeError);
    CHECK(x.grad().item() == 6);
  }
  Tape tape;
  const Tensor loss = x * x;
  Tensor(x).zero_grad();
  tape.backward(loss, {.keep_graph = true});
  tape.backward(loss);
  CHECK(x.grad().item() == 12);
}

TEST_CASE("AG-05: separate forwards add up; a shared part is consumed once") {
  const Tensor x = leaf({3});
  Tape tape;
  tape.backward(2 * x);
  tape.backward(5 * x);
  CHECK(x.grad().item() == 7);
  const Tensor shared = x * x;
  tape.backward(2 * shared);
  CHECK_THROWS_AS(tape.backward(3 * shared), wg::TapeError);
  CHECK(x.grad().item() == 7 + 12);
}

TEST_CASE("AG-05: no path, no seed, a wrong seed: typed errors, and no gradient changes") {
  const Tensor x = leaf({1, 2}), constant = wg::full({}, 1.0, DType::float64);
  Tape tape;
  const Tensor y = x * x;
  CHECK_THROWS_AS(tape.backward(constant * constant), wg::TapeError);
  CHECK_THROWS_WITH_AS(tape.backward(y),
                       "backward: the loss has shape [2]; reduce it to one element or give a seed of that shape",
                       wg::TapeError);
  CHECK_THROWS_WITH_AS(tape.backward(y, {.seed = wg::ones({3}, y)}), "backward: the seed has shape [3], the loss [2]",
                       wg::ShapeError);
  CHECK_THROWS_AS(tape.backward(y, {.seed = wg::ones({2}, DType::float32)}), wg::DTypeError);
  CHECK_FALSE(x.grad().defined());
  tape.backward(y, {.seed = wg::tensor<double>({1, 10})});
  CHECK(x.grad().to_vector<double>() == std::vector<double>{2, 40});
}

TEST_CASE("AG-05: a gradient handle keeps its values when the gradient is removed or added to") {
  Tensor x = leaf({3});
  Tape tape;
  tape.backward(x * x);
  const Tensor before = x.grad();
  tape.backward(x * x);
  CHECK(before.item() == 6);
  CHECK(x.grad().item() == 12);
  x.zero_grad();
  CHECK_FALSE(x.grad().defined());
  CHECK(before.item() == 6);
}

TEST_CASE("a loss that is itself a leaf gets its seed") {
  const Tensor x = leaf({3});
  Tape tape;
  tape.backward(x);
  CHECK(x.grad().item() == 1);
}

TEST_CASE("AG-07: a saved value that was changed is named, and no gradient changes") {
  Tensor w = leaf({2, 5});
  w.set_name("encoder.weight");
  const Tensor x = wg::tensor<double>({1, 3});
  Tape tape;
  const Tensor l1 = wg::sum(w * w * x), l2 = wg::sum(3 * (w * w * x));
  tape.backward(l1);
  const auto before = w.grad().to_vector<double>();
  {
    const wg::NoGrad pause;
    w.add_(w.grad(), -0.1);
  }
  CHECK_THROWS_WITH_AS(tape.backward(l2), doctest::Contains("mul saved 'encoder.weight' (shape [2]) at version"),
                       wg::TapeError);
  CHECK(w.grad().to_vector<double>() == before);
}

TEST_CASE("AG-07: a reshaped value shares the version; a value that is not needed may change") {
  Tensor w = leaf({1, 2, 3, 4}, {2, 2});
  {
    Tape tape;
    const Tensor loss = wg::sum(wg::square(wg::reshape(w, {4})));
    {
      const wg::NoGrad pause;
      w.mul_(2);
    }
    CHECK_THROWS_AS(tape.backward(loss), wg::TapeError);
  }
  Tape tape;
  const Tensor ids = wg::tensor<std::int64_t>({1, 0});
  const Tensor loss = wg::sum(wg::embedding(w, ids)) + wg::sum(wg::embedding(w, ids));
  {
    const wg::NoGrad pause;
    w.mul_(2);
  }
  tape.backward(loss);
  CHECK(w.grad().to_vector<double>() == std::vector<double>{2, 2, 2, 2});
}

TEST_CASE("AG-07: changing a recorded value or a leaf in place is refused under a tape") {
  Tensor w = leaf({1, 2});
  Tape tape;
  Tensor y = w * w;
  CHECK_THROWS_AS(y.fill_(0), wg::TapeError);
  CHECK_THROWS_WITH_AS(w.mul_(2), doctest::Contains("a leaf that requires grad on a tape cannot be changed in place"),
                       wg::TapeError);
  Tensor free = wg::tensor<double>({1, 2});
  free.mul_(2);
  CHECK(w.to_vector<double>() == std::vector<double>{1, 2});
}

TEST_CASE("AG-08: totals, saved outputs and throws leave no nodes and no memory") {
  Tensor w = leaf({0.5});
  wg::Memory& memory = w.storage().memory();
  Tensor total = wg::full({}, 0, DType::float64);
  std::int64_t in_use = 0;
  for (int step = 0; step < 10'000; ++step) {
    Tape tape;
    const Tensor loss = wg::square(w);
    total = total + loss;
    tape.backward(loss);
    w.zero_grad();
    if (step == 10) in_use = memory.stats().in_use;
  }
  CHECK(wg::live_nodes() == 0);
  CHECK(memory.stats().in_use <= in_use);
  CHECK(total.item() == 2500);
  for (int step = 0; step < 10'000; ++step) {
    Tape tape;
    const Tensor y = wg::exp(w);  // saves its own output
    if (step == 10) in_use = memory.stats().in_use;
  }
  CHECK(memory.stats().in_use <= in_use);
  try {
    Tape tape;
    const Tensor y = wg::exp(w);
    wg::add(y, wg::zeros({2, 3}, DType::float32));
  } catch (const wg::DTypeError&) {
  }
  CHECK(wg::live_nodes() == 0);
}

TEST_CASE("stored gradients share memory with nothing") {
  const Tensor a = leaf({1, 2}), b = leaf({3, 4});
  Tensor seed = wg::tensor<double>({1, 1});
  Tape tape;
  tape.backward(a + b, {.seed = seed});
  seed.fill_(100);
  CHECK(&a.gradient().tensor().storage() != &b.gradient().tensor().storage());
  Tensor(a.gradient().tensor()).fill_(7);
  CHECK(b.grad().to_vector<double>() == std::vector<double>{1, 1});
  Tensor given = wg::tensor<double>({5, 5});
  Tensor(b).set_gradient(given);
  given.fill_(0);
  CHECK(b.grad().to_vector<double>() == std::vector<double>{5, 5});
}

TEST_CASE("only leaves of a floating type can require grad") {
  CHECK_THROWS_AS(wg::arange(0, 3).set_requires_grad(), wg::DTypeError);
  const Tensor w = leaf({1});
  Tape tape;
  Tensor y = w * w;
  CHECK_THROWS_AS(y.set_requires_grad(), wg::TapeError);
}

TEST_CASE("gradients that are set are checked") {
  Tensor w = leaf({1, 2});
  CHECK_THROWS_AS(w.set_gradient(wg::zeros({3}, DType::float64)), wg::ShapeError);
  CHECK_THROWS_AS(w.set_gradient(wg::zeros({2}, DType::float32)), wg::DTypeError);
  CHECK_FALSE(w.grad().defined());
}
