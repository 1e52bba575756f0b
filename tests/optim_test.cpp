/// Optimisers against plain loops in double, the rules for rows, decay, duplicates and state.

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <memory>

#include "tensor_tools.hpp"
#include "wengert/gradient.hpp"
#include "wengert/ops.hpp"
#include "wengert/optim.hpp"
#include "wengert/tape.hpp"

using namespace wengert;
using doctest::Approx;
using optim::Adam;
using optim::AdamW;
using optim::RowUpdate;
using optim::SGD;
using testing::Values;
using testing::values_of;

namespace {

Tensor make(const Values& values, const Shape& shape, DType dtype = DType::float64) {
  return tensor(values, shape).to(dtype);
}
Tensor leaf(const Values& values, const Shape& shape, DType dtype = DType::float64) {
  return make(values, shape, dtype).set_requires_grad();
}

constexpr std::int64_t rows = 5, width = 3;

/// Which rows of the table have a gradient in step t, ascending.
std::vector<std::int64_t> present(int t) {
  const std::int64_t a = t % rows, b = (2 * t + 1) % rows;
  return a == b ? std::vector<std::int64_t>{a} : std::vector<std::int64_t>{std::min(a, b), std::max(a, b)};
}
double gradient_at(int t, std::int64_t i) { return std::sin(3.0 * t + 0.7 * static_cast<double>(i)); }

enum class Kind { dense, rows_dense, rows_lazy };

/// The gradient of step t and, for each element, whether it steps and by which gradient.
Gradient gradient_of(Kind kind, int t, DType dtype, Values& g, std::vector<bool>& steps) {
  g.assign(rows * width, 0.0);
  steps.assign(rows * width, kind != Kind::rows_lazy);
  if (kind == Kind::dense) {
    for (std::int64_t i = 0; i < rows * width; ++i) g[static_cast<std::size_t>(i)] = gradient_at(t, i);
    return make(g, {rows, width}, dtype);
  }
  Values stored;
  for (const std::int64_t row : present(t))
    for (std::int64_t i = row * width; i < (row + 1) * width; ++i) {
      g[static_cast<std::size_t>(i)] = gradient_at(t, i);
      steps[static_cast<std::size_t>(i)] = true;
      stored.push_back(gradient_at(t, i));
    }
  const auto ids = present(t);
  const auto count = static_cast<std::int64_t>(ids.size());
  return RowGrad{tensor(ids, {count}), make(stored, {count, width}, dtype), rows};
}

Values start_values() {
  Values values;
  for (int i = 0; i < rows * width; ++i) values.push_back(0.3 * std::cos(1.0 + i));
  return values;
}

/// Ten steps of `optimizer` over `w`, and of `plain(t, i, g, p)` over doubles; they must end alike.
template <class Plain>
void compare(optim::Optimizer& optimizer, Tensor w, Kind kind, Plain plain) {
  Values p = values_of(w), g;
  std::vector<bool> steps;
  for (int t = 1; t <= 10; ++t) {
    w.set_gradient(gradient_of(kind, t, w.dtype(), g, steps));
    optimizer.step();
    for (std::size_t i = 0; i < p.size(); ++i)
      if (steps[i]) plain(t, i, g[i], p[i]);
  }
  const Values got = values_of(w);
  const double tolerance = w.dtype() == DType::float64 ? 1e-12 : 2e-6;
  for (std::size_t i = 0; i < p.size(); ++i) CHECK(std::abs(got[i] - p[i]) <= tolerance);
}

constexpr Kind kinds[] = {Kind::dense, Kind::rows_dense, Kind::rows_lazy};
RowUpdate update_of(Kind kind) { return kind == Kind::rows_lazy ? RowUpdate::lazy : RowUpdate::dense; }

}  // namespace

TEST_CASE("SGD: ten steps equal a plain loop, dense and row-sparse") {
  struct Setting {
    double momentum, dampening, decay;
    bool nesterov;
  };
  for (const Setting& s :
       {Setting{0, 0, 0, false}, {0, 0, 0.1, false}, {0.9, 0, 0.01, false}, {0.9, 0.2, 0, false}, {0.8, 0, 0.05, true}})
    for (const Kind kind : kinds)
      for (const DType dtype : {DType::float32, DType::float64}) {
        CAPTURE(s.momentum);
        CAPTURE(static_cast<int>(kind));
        Tensor w = leaf(start_values(), {rows, width}, dtype);
        SGD optimizer({{"w", w}}, {.lr = 0.05,
                                   .momentum = s.momentum,
                                   .dampening = s.dampening,
                                   .weight_decay = s.decay,
                                   .nesterov = s.nesterov,
                                   .rows = update_of(kind)});
        Values buffer(rows * width, 0.0);
        compare(optimizer, w, kind, [&](int t, std::size_t i, double g, double& p) {
          g += s.decay * p;
          double direction = g;
          if (s.momentum != 0.0) {
            buffer[i] = t == 1 ? g : s.momentum * buffer[i] + (1.0 - s.dampening) * g;
            direction = s.nesterov ? g + s.momentum * buffer[i] : buffer[i];
          }
          p -= 0.05 * direction;
        });
      }
}

TEST_CASE("Adam and AdamW: ten steps equal a plain loop, dense and row-sparse") {
  for (const bool decoupled : {false, true})
    for (const double decay : {0.0, 0.1})
      for (const Kind kind : kinds)
        for (const DType dtype : {DType::float32, DType::float64}) {
          CAPTURE(decoupled);
          CAPTURE(decay);
          CAPTURE(static_cast<int>(kind));
          const double lr = 0.02, b1 = 0.8, b2 = 0.95, eps = 1e-6;
          Tensor w = leaf(start_values(), {rows, width}, dtype);
          Values m(rows * width, 0.0), v(rows * width, 0.0);
          const auto plain = [&](int t, std::size_t i, double g, double& p) {
            if (decoupled) p -= lr * decay * p;
            if (!decoupled) g += decay * p;
            m[i] += (1.0 - b1) * (g - m[i]);
            v[i] += (1.0 - b2) * (g * g - v[i]);
            const double m_hat = m[i] / (1.0 - std::pow(b1, t)), v_hat = v[i] / (1.0 - std::pow(b2, t));
            p -= lr * m_hat / (std::sqrt(v_hat) + eps);
          };
          if (decoupled) {
            AdamW optimizer({{"w", w}}, {lr, b1, b2, eps, decay, update_of(kind)});
            compare(optimizer, w, kind, plain);
          } else {
            Adam optimizer({{"w", w}}, {lr, b1, b2, eps, decay, update_of(kind)});
            compare(optimizer, w, kind, plain);
          }
        }
}

TEST_CASE("OPT-01: steps are counted by parameter, and eps stands outside the root") {
  Tensor a = leaf({1.0}, {1}), b = leaf({1.0}, {1});
  Adam optimizer({{"a", a}, {"b", b}}, {.lr = 0.1});
  for (int step = 1; step <= 4; ++step) {
    a.set_gradient(make({1.0}, {1}));
    optimizer.step();
    CHECK(a.item() == Approx(1.0 - 0.1 * step).epsilon(1e-7));
    CHECK(b.item() == 1.0);  // without a gradient: untouched
  }
  b.set_gradient(make({1.0}, {1}));
  optimizer.step();
  CHECK(b.item() == Approx(0.9).epsilon(1e-7));  // corrected as its first step
  CHECK(optimizer.state_dict().steps[0].value == 5);
  CHECK(optimizer.state_dict().steps[1].value == 1);

  Tensor tiny = leaf({0.0}, {1}, DType::float32);
  Adam small({{"tiny", tiny}}, {.lr = 1.0});
  tiny.set_gradient(make({1e-7}, {1}, DType::float32));
  small.step();
  CHECK(-tiny.item() == Approx(0.909091).epsilon(1e-4));
}

TEST_CASE("OPT-02: rows without a gradient move in dense mode and stand still in lazy mode") {
  // Row 0 in every step, row 1 in steps 1 and 4, row 2 never.
  const auto run = [](optim::Optimizer& optimizer, Tensor& w, std::vector<Values>& trail) {
    for (int t = 1; t <= 4; ++t) {
      const bool both = t == 1 || t == 4;
      w.set_gradient(both ? RowGrad{tensor<std::int64_t>({0, 1}), make({0.5, -1.0}, {2, 1}), 3}
                          : RowGrad{tensor<std::int64_t>({0}), make({0.5}, {1, 1}), 3});
      optimizer.step();
      trail.push_back(values_of(w));
    }
  };
  const auto both_modes = [&](auto make_optimizer) {
    Tensor dense = leaf({1, 2, 3}, {3, 1}), lazy = leaf({1, 2, 3}, {3, 1});
    auto by_dense = make_optimizer(dense, RowUpdate::dense);
    auto by_lazy = make_optimizer(lazy, RowUpdate::lazy);
    std::vector<Values> dense_trail, lazy_trail;
    run(*by_dense, dense, dense_trail);
    run(*by_lazy, lazy, lazy_trail);
    for (int t = 0; t < 4; ++t) {
      CHECK(dense_trail[t][0] == lazy_trail[t][0]);
      CHECK(dense_trail[t][2] == 3.0);
      CHECK(lazy_trail[t][2] == 3.0);
    }
    CHECK(dense_trail[0][1] == lazy_trail[0][1]);
    CHECK(lazy_trail[1][1] == lazy_trail[0][1]);
    CHECK(lazy_trail[2][1] == lazy_trail[0][1]);
    CHECK(dense_trail[1][1] > dense_trail[0][1]);
    CHECK(dense_trail[2][1] > dense_trail[1][1]);
    CHECK(lazy_trail[3][1] > lazy_trail[2][1]);
    return lazy_trail[3][1] - lazy_trail[2][1];
  };
  const double moved = both_modes([](Tensor& w, RowUpdate mode) {
    return std::make_unique<Adam>(NamedTensors{{"w", w}}, optim::AdamOptions{.lr = 0.1, .rows = mode});
  });
  // The row uses the step number of its table: t = 4 where its own count would be 2.
  const double m = 0.9 * 0.1 + 0.1, v = 0.999 * 0.001 + 0.001;
  CHECK(moved == Approx(0.1 * (m / (1 - std::pow(0.9, 4))) / (std::sqrt(v / (1 - std::pow(0.999, 4))) + 1e-8)));
  both_modes([](Tensor& w, RowUpdate mode) {
    return std::make_unique<SGD>(NamedTensors{{"w", w}}, optim::SGDOptions{.lr = 0.1, .momentum = 0.9, .rows = mode});
  });
}

TEST_CASE("OPT-04: decay reaches what has a gradient, and nothing else") {
  for (const RowUpdate mode : {RowUpdate::dense, RowUpdate::lazy}) {
    Tensor table = leaf(Values(8, 1.0), {4, 2}), alone = leaf({1.0}, {1}), frozen = make({1.0}, {1});
    AdamW optimizer({{"table", table}, {"alone", alone}, {"frozen", frozen}},
                    {.lr = 0.1, .weight_decay = 0.1, .rows = mode});
    table.set_gradient(RowGrad{tensor<std::int64_t>({1}), make({1.0, 1.0}, {1, 2}), 4});
    optimizer.step();
    const Values got = values_of(table);
    const double others = mode == RowUpdate::dense ? 0.99 : 1.0;  // a padding row is one of them
    CHECK(got[0] == Approx(others).epsilon(1e-15));
    CHECK(got[6] == Approx(others).epsilon(1e-15));
    CHECK(got[2] == Approx(0.99 - 0.1).epsilon(1e-7));  // the decay uses the value before the step
    CHECK(alone.item() == 1.0);
    CHECK(frozen.item() == 1.0);
    // Frozen in the middle of a training run, with a gradient left over.
    const Values before = values_of(table);
    table.set_requires_grad(false);
    optimizer.step();
    CHECK(values_of(table) == before);
  }
}

TEST_CASE("EMB-04 (e): a batch of padding alone is a step that changes nothing") {
  const auto run = [](auto make_optimizer) {
    Tensor table = leaf({1, 2, 3, 4, 5, 6}, {3, 2}, DType::float32);
    auto optimizer = make_optimizer(table);
    {
      Tape tape;
      tape.backward(sum(embedding(table, tensor<std::int64_t>({0, 0}), {.padding_idx = 0})));
    }
    REQUIRE(table.gradient().is_rows());
    CHECK(table.gradient().rows().count() == 0);
    optimizer->step();
    CHECK(values_of(table) == Values{1, 2, 3, 4, 5, 6});
    for (const NamedTensor& state : optimizer->state_dict().tensors) CHECK(values_of(state.tensor) == Values(6, 0.0));
  };
  for (const RowUpdate mode : {RowUpdate::dense, RowUpdate::lazy}) {
    run([&](Tensor& w) { return std::make_unique<Adam>(NamedTensors{{"w", w}}, optim::AdamOptions{.rows = mode}); });
    run([&](Tensor& w) {
      return std::make_unique<SGD>(NamedTensors{{"w", w}}, optim::SGDOptions{.momentum = 0.9, .rows = mode});
    });
  }
}

TEST_CASE("AG-07: a step leaves the gradient as it was, and the tape notices that the weight has changed") {
  for (const double decay : {0.0, 0.1}) {
    Tensor w = leaf({2.0}, {1}).set_name("w");
    SGD sgd({{"w", w}}, {.lr = 0.1, .momentum = 0.9, .weight_decay = decay});
    AdamW adamw({{"w", w}}, {.lr = 0.1, .weight_decay = decay});
    Adam adam({{"w", w}}, {.lr = 0.1, .weight_decay = decay});
    for (optim::Optimizer* optimizer : {static_cast<optim::Optimizer*>(&sgd), static_cast<optim::Optimizer*>(&adamw),
                                        static_cast<optim::Optimizer*>(&adam)}) {
      w.zero_grad();
      Tape tape;
      const Tensor first = sum(w * w), second = sum(w * w * 3.0);
      tape.backward(first);
      const double before = w.grad().item();
      optimizer->step();
      CHECK(w.grad().item() == before);
      CHECK_THROWS_AS(tape.backward(second), TapeError);
    }
  }
  // Looking up does not need the table's values: no complaint.
  Tensor table = leaf({1, 2, 3, 4}, {2, 2});
  SGD optimizer({{"table", table}}, {.lr = 0.1});
  Tape tape;
  const Tensor ids = tensor<std::int64_t>({1});
  const Tensor first = sum(embedding(table, ids)), second = sum(embedding(table, ids));
  tape.backward(first);
  optimizer.step();
  CHECK_NOTHROW(tape.backward(second));
  CHECK(values_of(table.grad()) == Values{0, 0, 2, 2});
}

TEST_CASE("groups have a rate, decay and row rule of their own") {
  Tensor a = leaf({1.0}, {1}), b = leaf({1.0}, {1}), table = leaf({1.0, 1.0}, {2, 1});
  SGD optimizer({{.parameters = {{"a", a}}}, {.parameters = {{"b", b}}, .lr = 0.5, .weight_decay = 1.0}}, {.lr = 0.1});
  optimizer.add_group({.parameters = {{"table", table}}, .weight_decay = 1.0, .rows = RowUpdate::lazy});
  REQUIRE(optimizer.num_groups() == 3);
  for (Tensor* w : {&a, &b}) w->set_gradient(make({1.0}, {1}));
  table.set_gradient(RowGrad{tensor<std::int64_t>({1}), make({1.0}, {1, 1}), 2});
  optimizer.step();
  CHECK(a.item() == Approx(0.9));
  CHECK(b.item() == Approx(0.0));
  CHECK(values_of(table)[0] == 1.0);
  CHECK(values_of(table)[1] == Approx(0.8));
  optimizer.set_lr(0.25, 1);
  CHECK(optimizer.lr(0) == 0.1);
  CHECK(optimizer.lr(1) == 0.25);
  optimizer.zero_grad();
  CHECK(!a.gradient().defined());
  CHECK(!table.gradient().defined());
}

TEST_CASE("settings out of range are refused with their name and value") {
  Tensor w = leaf({1.0}, {1});
  const NamedTensors p{{"w", w}};
  CHECK_THROWS_WITH_AS(SGD(p, {.lr = -1.0}), "SGD: lr is -1; allowed is [0, inf)", ValueError);
  CHECK_THROWS_WITH_AS(SGD(p, {.momentum = -0.5}), "SGD: momentum is -0.5; allowed is [0, inf)", ValueError);
  CHECK_THROWS_WITH_AS(SGD(p, {.nesterov = true}), "SGD: nesterov needs momentum above 0 and dampening 0", ValueError);
  CHECK_THROWS_WITH_AS(Adam(p, {.beta1 = 1.0}), "Adam: beta1 is 1; allowed is [0, 1)", ValueError);
  CHECK_THROWS_WITH_AS(Adam(p, {.eps = std::nan("")}), "Adam: eps is nan; allowed is [0, inf)", ValueError);
  CHECK_THROWS_WITH_AS(AdamW(p, {.beta2 = -0.1}), "AdamW: beta2 is -0.1; allowed is [0, 1)", ValueError);
  CHECK_THROWS_WITH_AS(AdamW(p, {.weight_decay = -1.0}), "AdamW: weight_decay is -1; allowed is [0, inf)", ValueError);
  CHECK_THROWS_WITH_AS(SGD(NamedTensors{}), "SGD: a group without parameters", ValueError);
  CHECK_THROWS_WITH_AS(SGD({{"w", Tensor()}}), "SGD: parameter w is undefined", ValueError);
  CHECK_THROWS_WITH_AS(SGD({{"ids", tensor<std::int64_t>({1})}}),
                       "SGD: parameter ids is int64; only float32 and float64 can be trained", DTypeError);
  SGD optimizer(p, {.lr = 1.0});
  CHECK_THROWS_AS(optimizer.set_lr(std::numeric_limits<double>::infinity()), ValueError);
  CHECK_THROWS_AS(optimizer.add_group({.parameters = {{"v", leaf({1.0}, {1})}}, .lr = -1.0}), ValueError);
  CHECK(optimizer.num_groups() == 1);
}

TEST_CASE("OPT-05: a parameter is listed once, kept apart by name, and must still be in use") {
  Tensor w = leaf({1, 2, 3, 4}, {2, 2}), v = leaf({1, 2, 3, 4}, {2, 2});
  CHECK_THROWS_WITH_AS(SGD({{"w", w}, {"tied", w}}),
                       "SGD: parameter tied is the same tensor as w; list tied weights once", ValueError);
  CHECK_THROWS_WITH_AS(SGD({{.parameters = {{"w", w}}}, {.parameters = {{"v", v}, {"again", w}}}}),
                       "SGD: parameter again is the same tensor as w; list tied weights once", ValueError);
  {
    SGD optimizer({{"w", w}}, {.lr = 1.0});
    CHECK_THROWS_AS(optimizer.add_group({.parameters = {{"other", v}, {"x", w}}}), ValueError);
    CHECK_THROWS_WITH_AS(optimizer.add_group({.parameters = {{"w", v}}}),
                         "SGD: two parameters are named w; state is kept by name", ValueError);
    CHECK(optimizer.named_parameters().size() == 1);  // a group that throws adds nothing
  }

  v.set_gradient(make({1, 1, 1, 1}, {2, 2}));
  SGD both({{"v", v}, {"w", w}}, {.lr = 1.0});
  w = leaf({5, 6, 7, 8}, {2, 2});  // as a module whose member was replaced
  CHECK_THROWS_WITH_AS(both.step(),
                       "SGD: parameter w is no longer in the model: another tensor took its place after the optimiser "
                       "was made; make the optimiser anew",
                       Error);
  CHECK(values_of(v) == Values{1, 2, 3, 4});
  CHECK(both.step_count() == 0);
}
