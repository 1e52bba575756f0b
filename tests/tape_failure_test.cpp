// What the tape refuses, and what a failure leaves behind.

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "wengert/backends/reference.hpp"
#include "wengert/kernels.hpp"
#include "wengert/ops.hpp"
#include "wengert/random.hpp"
#include "wengert/tape.hpp"

namespace wg = wengert;
using wg::Tape;
using wg::Tensor;

namespace {

Tensor leaf(double value) { return wg::full({}, value, wg::DType::float64).set_requires_grad(); }

// Adds as reference does, until it is told to fail.
template <class T>
struct FailingKernels : wg::reference::Kernels<T> {
  static constexpr std::string_view origin = "failing";
  static inline int additions_left = -1;
  void binary(wg::Binary op, const Tensor& a, const Tensor& b, Tensor& out) override {
    if (op == wg::Binary::add && additions_left >= 0 && additions_left-- == 0)
      throw wg::BackendError("no memory for add");
    wg::reference::Kernels<T>::binary(op, a, b, out);
  }
};

wg::Backend& failing() {
  static wg::reference::BackendWith<FailingKernels> backend("failing");
  return backend;
}

}  // namespace

TEST_CASE("a kernel that fails in a backward pass leaves every gradient as it was, and nothing for the next pass") {
  const wg::BackendScope use(failing());
  Tensor leaves[3];
  for (Tensor& x : leaves) x = leaf(1);
  const auto loss = [&] { return leaves[0] * 2.0 + leaves[1] * 3.0 + leaves[2] * 5.0; };
  const auto backward = [&] {
    Tape tape;
    tape.backward(loss());
  };
  backward();
  for (int fail_at = 0; fail_at < 3; ++fail_at) {  // adding to the gradients that are there takes three additions
    {
      Tape tape;
      const Tensor total = loss();
      FailingKernels<double>::additions_left = fail_at;
      CHECK_THROWS_AS(tape.backward(total), wg::BackendError);
      FailingKernels<double>::additions_left = -1;
    }
    CHECK(leaves[0].grad().item() == 2);
    CHECK(leaves[1].grad().item() == 3);
    CHECK(leaves[2].grad().item() == 5);
  }
  backward();
  CHECK(leaves[0].grad().item() == 4);
  CHECK(leaves[1].grad().item() == 6);
  CHECK(leaves[2].grad().item() == 10);
  CHECK(wg::live_nodes() == 0);
}

TEST_CASE("in-place operations refuse an operand whose gradient they would lose") {
  const Tensor w = leaf(3);
  Tensor sum = wg::full({}, 0, wg::DType::float64);
  Tape tape;
  CHECK_THROWS_AS(sum.add_(w * 3.0), wg::TapeError);
  CHECK_THROWS_AS(sum.copy_(w), wg::TapeError);
  CHECK(sum.item() == 0);
  sum.add_((w * 3.0).detach());
  CHECK(sum.item() == 9);
}

TEST_CASE("row gradients that are set are checked, ids and all") {
  Tensor table = wg::zeros({4, 2}).set_requires_grad();
  const auto rows = [](std::int64_t n) { return wg::ones({n, 2}); };
  const auto set = [&](const Tensor& ids, const Tensor& values) { table.set_gradient(wg::RowGrad{ids, values, 4}); };
  CHECK_THROWS_AS(set(wg::tensor<std::int64_t>({0, 4}), rows(2)), wg::IndexError);
  CHECK_THROWS_AS(set(wg::tensor<std::int64_t>({2, 1}), rows(2)), wg::IndexError);
  CHECK_THROWS_AS(set(wg::tensor<std::int64_t>({1, 1}), rows(2)), wg::IndexError);
  CHECK_THROWS_AS(set(wg::tensor<std::int32_t>({0, 1}), rows(2)), wg::DTypeError);
  CHECK_THROWS_AS(set(wg::tensor<std::int64_t>({0, 1}), rows(1)), wg::ShapeError);
  CHECK_THROWS_AS(wg::RowGrad::merge(wg::tensor<std::int64_t>({0, 9}), rows(2), 4), wg::IndexError);
  CHECK_FALSE(table.gradient().defined());
  set(wg::tensor<std::int64_t>({1, 3}), rows(2));
  CHECK(table.grad().to_vector<float>() == std::vector<float>{0, 0, 1, 1, 0, 0, 1, 1});
}

TEST_CASE("BK-08: a leaf that moves in the middle of a tape collects both parts where it lives") {
  Tensor w = wg::tensor<double>({3}).to("reference").set_requires_grad();
  Tape tape;
  const Tensor before = (w * 2.0).to("odd");
  w.move_to_(wg::backend("odd"));
  Tensor y = w * 5.0;
  CHECK_THROWS_AS(y.move_to_(wg::backend("reference")), wg::TapeError);
  tape.backward(before + y);
  CHECK(w.grad().backend().name() == "odd");
  CHECK(w.grad().item() == 7);
}

TEST_CASE("a gradient on the wrong backend is an error that names both") {
  const Tensor w = wg::tensor<double>({3}).to("reference").set_requires_grad();
  Tape tape;
  const Tensor x = w * 1.0;
  const Tensor y = wg::record("mine", x.detach().clone(), {x}, {},
                              [](wg::BackwardStep& step) { step.give(0, step.grad().to("odd")); });
  CHECK_THROWS_WITH_AS(tape.backward(y), "backward: mine gave operand 0, which is on reference, a gradient on odd",
                       wg::TapeError);
  CHECK_FALSE(w.grad().defined());
}

TEST_CASE("threads that share a leaf add up their gradients, or are told to take turns") {
  const Tensor w = leaf(1);
  std::atomic<int> done{0};
  const auto work = [&] {
    for (int i = 0; i < 2000; ++i) {
      Tape tape;
      try {
        tape.backward(w * 1.0);
        ++done;
      } catch (const wg::TapeError&) {
      }
    }
  };
  std::thread a(work), b(work), c(work);
  a.join();
  b.join();
  c.join();
  CHECK(w.grad().item() == done);
  CHECK(done > 0);
}

TEST_CASE("many short backward passes over one long tape take time that follows their own length") {
  const Tensor w = leaf(1);
  const auto seconds = [&](int count) {
    Tape tape;
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < count; ++i) tape.backward(w * 1.0);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  seconds(1000);
  CHECK(seconds(64'000) <
        200 * seconds(1000) + 1.0);  // 64 times as many; a quadratic walk would take 4096 times as long
}

TEST_CASE("closures are aligned as their type asks") {
  struct alignas(64) Wide {
    double values[8];
  };
  const Tensor w = leaf(1);
  Tape tape;
  bool aligned = true;
  Tensor y = w;
  for (int i = 0; i < 50; ++i) {
    const Wide wide{{double(i)}};
    y = wg::record("mine", y.detach().clone(), {y}, {}, [wide, &aligned](wg::BackwardStep& step) {
      aligned = aligned && reinterpret_cast<std::uintptr_t>(&wide) % 64 == 0;
      step.give(0, step.grad());
    });
  }
  tape.backward(y);
  CHECK(aligned);
  CHECK(w.grad().item() == 1);
}

TEST_CASE("take overwrites a saved value only where nobody can see it") {
  // y = 2x, by a derivative that keeps its factor in a saved tensor and scales it in place.
  const auto twice = [](const Tensor& x, const Tensor& factor) {
    return wg::record("twice", x.detach() * factor, {x}, {factor}, [](wg::BackwardStep& step) {
      Tensor taken = step.take(0);
      taken.kernels().binary(wg::Binary::mul, taken, step.grad(), taken);
      step.give(0, taken);
    });
  };
  const Tensor w = leaf(3), factor = wg::full({}, 2.0, wg::DType::float64);
  {
    Tape tape;
    const Tensor own = twice(w, factor.clone());  // of the tape alone
    tape.backward(own * 5.0, {.keep_graph = true});
    CHECK(w.grad().item() == 10);
    tape.backward(own * 5.0);
    CHECK(w.grad().item() == 20);
    CHECK_THROWS_AS(tape.backward(own * 5.0), wg::TapeError);
    tape.backward(twice(w, factor) * 5.0);
  }
  CHECK(w.grad().item() == 30);
  CHECK(factor.item() == 2);
}

TEST_CASE("take of what was not saved, or was taken, is an error that names the operation") {
  const Tensor w = leaf(3);
  const auto takes = [&](const wg::Saved& saved, std::initializer_list<std::size_t> places) {
    return wg::record("greedy", w * 1.0, {w}, saved, [all = std::vector<std::size_t>(places)](wg::BackwardStep& step) {
      for (const std::size_t i : all) step.take(i);
    });
  };
  for (const bool keep : {false, true}) {
    CAPTURE(keep);
    Tape tape;
    const auto fails = [&](const Tensor& loss, const char* text) {
      CHECK_THROWS_WITH_AS(tape.backward(loss, {.keep_graph = keep}), text, wg::TapeError);
    };
    fails(takes({}, {0}), "take: greedy has no saved value 0, or it was taken");
    fails(takes({Tensor()}, {0}), "take: greedy has no saved value 0, or it was taken");
    fails(takes({w.clone(), w.clone()}, {1, 0, 1}), "take: greedy has no saved value 1, or it was taken");
  }
}

TEST_CASE("linear_cross_entropy goes back twice where the graph is kept, and no further") {
  const Tensor x = wg::randn({5, 3}).set_requires_grad(), weight = wg::randn({7, 3}).set_requires_grad();
  const Tensor labels = wg::randint(0, 7, {5});
  Tape tape;
  const Tensor loss = wg::linear_cross_entropy(x, weight, labels) * 3.0;
  tape.backward(loss, {.keep_graph = true});
  const auto once = weight.grad().to_vector<float>();
  tape.backward(loss);
  const auto twice = weight.grad().to_vector<float>();
  for (std::size_t i = 0; i < once.size(); ++i) CHECK(twice[i] == 2 * once[i]);
  CHECK_THROWS_AS(tape.backward(loss), wg::TapeError);
}
