/// State of optimisers: saved, loaded, moved among backends; schedules; clipping.

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <memory>

#include "tensor_tools.hpp"
#include "wengert/gradient.hpp"
#include "wengert/optim.hpp"

using namespace wengert;
using doctest::Approx;
using optim::Adam;
using optim::AdamW;
using optim::OptimizerState;
using optim::SGD;
using testing::make;
using testing::Values;
using testing::values_of;

namespace {

Tensor leaf(const Values& values, const Shape& shape, DType dtype = DType::float32) {
  return make(values, shape, dtype).set_requires_grad();
}

void set_gradients(Tensor& a, Tensor& b, int t) {
  a.set_gradient(make({std::sin(1.0 * t), std::cos(2.0 * t)}, {2}).to(a.backend()));
  const Tensor ids = tensor<std::int64_t>({1}).to(b.backend());
  b.set_gradient(RowGrad{ids, make({std::sin(3.0 * t), 0.5}, {1, 2}).to(b.backend()), 2});
}

/// The values at the time of the call.
OptimizerState snapshot(const optim::Optimizer& optimizer) {
  OptimizerState state = optimizer.state_dict();
  for (NamedTensor& entry : state.tensors) entry.tensor = entry.tensor.clone();
  return state;
}

double schedule(std::int64_t n) { return optim::linear_warmup(n, 4) * optim::step_decay(n - 4, 2, 0.1); }

}  // namespace

TEST_CASE("OPT-05: state goes by name, and a resumed run ends in the same bits") {
  const auto run = [](auto make_optimizer) {
    Tensor a = leaf({1, 2}, {2}), b = leaf({1, 2, 3, 4}, {2, 2});
    auto straight = make_optimizer(NamedTensors{{"a", a}, {"b", b}});
    OptimizerState saved;
    Values a5, b5;
    for (int t = 1; t <= 10; ++t) {
      set_gradients(a, b, t);
      straight->step();
      if (t == 5) saved = snapshot(*straight), a5 = values_of(a), b5 = values_of(b);
    }
    Tensor a2 = leaf(a5, {2}), b2 = leaf(b5, {2, 2});
    auto resumed = make_optimizer(NamedTensors{{"b", b2}, {"a", a2}});  // the other order
    resumed->load_state_dict(saved);
    CHECK(resumed->step_count() == 5);
    for (int t = 6; t <= 10; ++t) {
      set_gradients(a2, b2, t);
      resumed->step();
    }
    CHECK(values_of(a2) == values_of(a));
    CHECK(values_of(b2) == values_of(b));
    CHECK(resumed->step_count() == 10);
  };
  run([](NamedTensors p) { return std::make_unique<AdamW>(std::move(p), optim::AdamWOptions{.lr = 0.1}); });
  run([](NamedTensors p) {
    return std::make_unique<SGD>(std::move(p), optim::SGDOptions{.lr = 0.1, .momentum = 0.9, .dampening = 0.5});
  });
}

TEST_CASE("a state that does not fit is refused as a whole, naming everything") {
  Tensor a = leaf({1, 2}, {2}), b = leaf({1, 2, 3, 4}, {2, 2});
  Adam optimizer({{"a", a}, {"b", b}}, {.lr = 0.1});
  set_gradients(a, b, 1);
  optimizer.step();
  const OptimizerState good = snapshot(optimizer);
  REQUIRE(good.tensors.size() == 4);
  CHECK(good.tensors[0].name == "a.exp_avg");
  CHECK(good.tensors[3].name == "b.exp_avg_sq");
  optimizer.step();
  const OptimizerState present = snapshot(optimizer);

  const auto refused = [&](const OptimizerState& state, const char* text) {
    CHECK_THROWS_WITH_AS(optimizer.load_state_dict(state), text, Error);
    CHECK(optimizer.step_count() == 2);
    const OptimizerState after = optimizer.state_dict();
    for (std::size_t i = 0; i < 4; ++i)
      CHECK(values_of(after.tensors[i].tensor) == values_of(present.tensors[i].tensor));
  };
  OptimizerState state = good;
  state.steps[0].name = "c";
  refused(state, "Adam: the state does not fit this optimiser; missing: a; unexpected: c, a.exp_avg, a.exp_avg_sq");
  state = good;
  state.tensors.pop_back();
  state.tensors.push_back({"b.momentum_buffer", make({1, 2, 3, 4}, {2, 2})});
  refused(state, "Adam: the state does not fit this optimiser; missing: b.exp_avg_sq; unexpected: b.momentum_buffer");
  state = good;
  state.tensors[0].tensor = make({1, 2, 3}, {3});
  state.tensors[2].tensor = make({1, 2, 3, 4}, {2, 2}, DType::float64);
  refused(state,
          "Adam: the state does not fit this optimiser; wrong: a.exp_avg is float32 [3], not float32 [2], b.exp_avg is "
          "float64 [2, 2], not float32 [2, 2]");
  state = good;
  state.tensors.push_back(state.tensors[0]);
  refused(state, "Adam: the state does not fit this optimiser; unexpected: a.exp_avg");
  state = good;
  state.steps[1].value = 7;
  refused(state, "Adam: the state does not fit this optimiser; wrong: b has 7 steps of 1");

  optimizer.load_state_dict(good);
  CHECK(optimizer.step_count() == 1);
  CHECK(!optimizer.state_dict().tensors[0].tensor.is(good.tensors[0].tensor));
  set_gradients(a, b, 2);
  optimizer.step();
  CHECK(values_of(good.tensors[0].tensor) !=
        values_of(optimizer.state_dict().tensors[0].tensor));  // values were copied
}

TEST_CASE("OPT-05: state follows a parameter to another backend") {
  const std::string other = current_backend().name() == "odd" ? "reference" : "odd";
  std::string reason;
  REQUIRE_MESSAGE(backend_available(other, &reason), reason);
  Tensor a = leaf({1, 2}, {2}), b = leaf({1, 2, 3, 4}, {2, 2}), a2 = leaf({1, 2}, {2}), b2 = leaf({1, 2, 3, 4}, {2, 2});
  AdamW moving({{"a", a}, {"b", b}}, {.lr = 0.1}), staying({{"a", a2}, {"b", b2}}, {.lr = 0.1});
  for (int t = 1; t <= 6; ++t) {
    if (t == 4) {
      a.move_to_(backend(other));
      b.move_to_(backend(other));
    }
    set_gradients(a, b, t);
    set_gradients(a2, b2, t);
    moving.step();
    staying.step();
  }
  CHECK(a.backend().name() == other);
  CHECK(moving.state_dict().tensors[0].tensor.backend().name() == other);
  CHECK(values_of(a) == values_of(a2));
  CHECK(values_of(b) == values_of(b2));

  // A state from one backend loads into an optimiser on another.
  staying.load_state_dict(moving.state_dict());
  CHECK(staying.state_dict().tensors[0].tensor.backend().name() == current_backend().name());
}

TEST_CASE("OPT-07: the schedule gives the rates of the table, also after a resume") {
  const Values table{0.25, 0.5, 0.75, 1, 1, 1, 0.1, 0.1, 0.01, 0.01};
  Tensor w = leaf({0.0}, {1}, DType::float64);
  SGD optimizer({{"w", w}}, {.lr = 1.0});
  optimizer.set_schedule(schedule);
  CHECK(optimizer.last_lr() == 0.0);
  OptimizerState saved;
  double expected = 0.0;
  for (std::size_t n = 0; n < 10; ++n) {
    if (n == 5) saved = snapshot(optimizer);
    w.set_gradient(make({1.0}, {1}, DType::float64));
    optimizer.step();
    CHECK(optimizer.last_lr() == Approx(table[n]).epsilon(1e-15));
    expected -= table[n];
    CHECK(w.item() == Approx(expected).epsilon(1e-14));
  }
  CHECK(optimizer.lr() == 1.0);

  SGD resumed({{"w", w}}, {.lr = 1.0});
  resumed.set_schedule(schedule);
  resumed.load_state_dict(saved);
  for (std::size_t n = 5; n < 10; ++n) {
    resumed.step();
    CHECK(resumed.last_lr() == Approx(table[n]).epsilon(1e-15));
  }

  // The rate of every group is multiplied.
  Tensor u = leaf({0.0}, {1}), v = leaf({0.0}, {1});
  SGD groups({{.parameters = {{"u", u}}}, {.parameters = {{"v", v}}, .lr = 3.0}}, {.lr = 1.0});
  groups.set_schedule(schedule);
  groups.step();
  CHECK(groups.last_lr(0) == 0.25);
  CHECK(groups.last_lr(1) == 0.75);
  groups.set_schedule({});
  groups.step();
  CHECK(groups.last_lr(1) == 3.0);
  groups.set_schedule([](std::int64_t) { return -0.5; });
  CHECK_THROWS_WITH_AS(groups.step(),
                       "SGD: the schedule gave the factor -0.5 for step 3; it must be finite and not negative",
                       ValueError);
  CHECK(groups.step_count() == 2);
}

TEST_CASE("OPT-07: decay along a line and a cosine, after a warm-up") {
  const Values table{0.5, 1, 0.8536, 0.5, 0.1464, 0, 0};
  for (std::int64_t n = 1; n <= 7; ++n) {
    CAPTURE(n);
    CHECK(std::abs(optim::linear_warmup(n, 2) * optim::cosine_decay(n - 2, 4) -
                   table[static_cast<std::size_t>(n - 1)]) < 5e-5);
    CHECK(optim::linear_decay(n, 4) == Approx(n < 4 ? 1 - 0.25 * static_cast<double>(n) : 0));
    CHECK(optim::linear_decay(n, 4, 0.2) == Approx(n < 4 ? 1 - 0.2 * static_cast<double>(n) : 0.2));
    CHECK(optim::cosine_decay(n, 4, 0.2) == Approx(0.2 + 0.8 * optim::cosine_decay(n, 4)));
    for (const std::int64_t total : {0, -3}) {
      CHECK(optim::linear_decay(n, total) == 1.0);
      CHECK(optim::cosine_decay(n, total) == 1.0);
    }
  }
  CHECK(optim::linear_decay(-5, 4) == 1.0);
  CHECK(optim::cosine_decay(0, 4) == 1.0);
  CHECK(optim::cosine_decay(4, 4) == 0.0);  // not a negative rounding error: a step would refuse that
}

TEST_CASE("OPT-07: no warm-up and no decay divide by nothing") {
  for (std::int64_t n = 1; n <= 3; ++n) {
    CHECK(optim::linear_warmup(n, 0) == 1.0);
    CHECK(optim::step_decay(n, 0, 0.1) == 1.0);
  }
  CHECK(optim::linear_warmup(1, 1) == 1.0);
  CHECK(optim::step_decay(-3, 2, 0.1) == 1.0);
}

TEST_CASE("clip_grad_norm: one norm over dense and row-sparse gradients") {
  Tensor a = leaf({0, 0}, {2}), b = leaf({0, 0, 0, 0}, {2, 2}), none = leaf({1}, {1});
  const auto set = [&] {
    a.set_gradient(make({3.0, 0.0}, {2}));
    b.set_gradient(RowGrad{tensor<std::int64_t>({1}), make({0.0, 4.0}, {1, 2}), 2});
  };
  const std::vector<Tensor> parameters{a, b, none, a};  // twice counts once
  set();
  CHECK(optim::clip_grad_norm(parameters, 10.0) == Approx(5.0));
  CHECK(values_of(a.grad()) == Values{3.0, 0.0});
  CHECK(optim::clip_grad_norm(parameters, 1.0) == Approx(5.0));
  CHECK(values_of(a.grad())[0] == Approx(3.0 / (5.0 + 1e-6)));
  CHECK(b.gradient().is_rows());
  CHECK(values_of(b.gradient().rows().rows)[1] == Approx(4.0 / (5.0 + 1e-6)));

  set();
  SGD optimizer({{"a", a}, {"b", b}, {"none", none}}, {.lr = 1.0});
  CHECK(optim::clip_grad_norm(optimizer, 2.5) == Approx(5.0));
  CHECK(values_of(a.grad())[0] == Approx(1.5));

  const double inf = std::numeric_limits<double>::infinity();
  a.set_gradient(make({inf, 1.0}, {2}));
  CHECK_THROWS_WITH_AS(optim::clip_grad_norm(optimizer, 1.0, true),
                       "clip_grad_norm: the norm of the gradients is inf; it must be finite", Error);
  CHECK(values_of(a.grad())[1] == 1.0);
  CHECK(optim::clip_grad_norm(optimizer, 1.0) == inf);
  CHECK(std::isnan(values_of(a.grad())[0]));
  CHECK(values_of(a.grad())[1] == 0.0);
  CHECK_THROWS_AS(optim::clip_grad_norm(optimizer, -1.0), ValueError);
  CHECK_THROWS_AS(optim::clip_grad_norm(optimizer, std::nan("")), ValueError);
  CHECK(optim::clip_grad_norm(std::vector<Tensor>{none, Tensor()}, 1.0) == 0.0);
}

TEST_CASE("clip_grad_value: inside keeps its bits, outside becomes the limit, NaN stays") {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  for (const DType dtype : {DType::float32, DType::float64}) {
    const Values before{0.1, -0.3, 0.7, -0.7, 0.7000001, -5.0, inf, -inf, nan, 0.0, 1e-38, -0.69999};
    const auto count = static_cast<std::int64_t>(before.size());
    Tensor a = leaf(Values(before.size(), 0.0), {count}, dtype);
    a.set_gradient(make(before, {count}, dtype));
    const Values rounded = values_of(a.grad());
    const double limit = values_of(make({0.7}, {1}, dtype))[0];
    optim::clip_grad_value(std::vector<Tensor>{a}, 0.7);
    const Values after = values_of(a.grad());
    for (std::size_t i = 0; i < before.size(); ++i) {
      CAPTURE(i);
      if (std::isnan(before[i])) {
        CHECK(std::isnan(after[i]));
      } else {
        CHECK(after[i] == std::min(std::max(rounded[i], -limit), limit));
      }
    }
  }
  Tensor b = leaf({0, 0, 0, 0}, {2, 2});
  b.set_gradient(RowGrad{tensor<std::int64_t>({1}), make({-9.0, 4.0}, {1, 2}), 2});
  SGD optimizer({{"b", b}}, {.lr = 1.0});
  optim::clip_grad_value(optimizer, 2.0);
  CHECK(values_of(b.gradient().rows().rows) == Values{-2.0, 2.0});
  CHECK_THROWS_WITH_AS(optim::clip_grad_value(optimizer, 0.0), "clip_grad_value: clip_value is 0; it must be above 0",
                       ValueError);
}
