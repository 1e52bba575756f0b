// Where the tape records: threads, guards, tapes within tapes.

#include <doctest/doctest.h>

#include <cmath>
#include <stdexcept>
#include <thread>

#include "wengert/ops.hpp"
#include "wengert/tape.hpp"

namespace wg = wengert;
using wg::DType;
using wg::Tape;
using wg::Tensor;

namespace {

Tensor leaf(const std::vector<double>& values) {
  return wg::tensor(values, {static_cast<std::int64_t>(values.size())}).set_requires_grad();
}

}  // namespace

TEST_CASE("AG-06: recording is a matter of the thread") {
  const Tensor x = leaf({2});
  const wg::NoGrad outside;
  bool inside = false;
  double gradient = 0;
  std::thread([&] {
    const Tensor w = leaf({3});
    Tape tape;
    inside = wg::recording();
    tape.backward(w * w);
    gradient = w.grad().item();
  }).join();
  CHECK(inside);
  CHECK(gradient == 6);
  Tape tape;
  CHECK_FALSE((x * x).requires_grad());
}

TEST_CASE("AG-06: a guard restores the mode, also on a throw and out of order") {
  Tape tape;
  CHECK(wg::recording());
  try {
    const wg::NoGrad a;
    CHECK_FALSE(wg::recording());
    const wg::EnableGrad b;
    CHECK(wg::recording());
    const wg::NoGrad c;
    CHECK_FALSE(wg::recording());
    throw std::runtime_error("inner level");
  } catch (const std::runtime_error&) {
  }
  CHECK(wg::recording());
  auto* first = new wg::NoGrad;
  auto* second = new wg::EnableGrad;
  delete first;
  CHECK(wg::recording());  // the second is still in force
  delete second;
  CHECK(wg::recording());
  auto* third = new wg::NoGrad;
  auto* fourth = new wg::NoGrad;
  delete third;
  CHECK_FALSE(wg::recording());
  delete fourth;
  CHECK(wg::recording());
}

TEST_CASE("AG-06: two threads train side by side") {
  double results[2] = {};
  const auto train = [&](int which) {
    Tensor w = leaf({1.0 + which});
    for (int step = 0; step < 200; ++step) {
      Tape tape;
      tape.backward(wg::square(w));
      const wg::NoGrad pause;
      w.add_(w.grad(), -0.01);
      w.zero_grad();
    }
    results[which] = w.item();
  };
  std::thread a(train, 0), b(train, 1);
  a.join();
  b.join();
  CHECK(results[1] == 2 * results[0]);
  CHECK(results[0] == doctest::Approx(std::pow(0.98, 200)));
  CHECK(wg::live_nodes() == 0);
}

TEST_CASE("tapes nest: the innermost records, and refuses values of the outer one") {
  const Tensor w = leaf({3});
  Tape outer;
  const Tensor y = w * w;
  {
    Tape inner;
    CHECK_THROWS_WITH_AS(wg::square(y), doctest::Contains("recorded on an outer tape"), wg::TapeError);
    const Tensor z = y.detach() * w;
    inner.backward(z);
    CHECK(w.grad().item() == 9);
    CHECK(inner.size() == 1);
    CHECK_THROWS_WITH_AS(outer.backward(z), "backward: the loss was recorded on another tape", wg::TapeError);
  }
  CHECK(outer.size() == 1);
  outer.backward(y);
  CHECK(w.grad().item() == 9 + 6);
}

TEST_CASE("tapes may end in any order") {
  const Tensor w = leaf({3});
  auto* first = new Tape;
  auto* second = new Tape;
  delete first;
  second->backward(w * w);
  CHECK(w.grad().item() == 6);
  delete second;
  CHECK_FALSE(wg::recording());
  CHECK(wg::live_nodes() == 0);
}

TEST_CASE("what a tape has recorded is a constant once the tape has ended") {
  const Tensor w = leaf({3});
  Tensor kept;
  {
    Tape tape;
    kept = w * w;
    CHECK(kept.requires_grad());
  }
  CHECK_FALSE(kept.requires_grad());
  Tape tape;
  tape.backward(kept * w);
  CHECK(w.grad().item() == 9);
}
