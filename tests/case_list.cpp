// Element by element, reductions, shapes.

#include "case_list.hpp"

#include <fmt/format.h>

#include <utility>

namespace wengert::cases {

namespace {

struct OneOperand {
  const char* name;
  Tensor (*run)(const Tensor&);
  Values values;
};

const OneOperand one_operand[] = {
    {"neg", neg, Values::normal},
    {"square", square, Values::normal},
    {"sqrt", wengert::sqrt, Values::positive},
    {"exp", wengert::exp, Values::normal},
    {"log", wengert::log, Values::positive},
    {"tanh", wengert::tanh, Values::normal},
    {"relu", relu, Values::normal},
    {"gelu", [](const Tensor& x) { return gelu(x); }, Values::normal},
    {"gelu by tanh", [](const Tensor& x) { return gelu(x, Approximate::tanh); }, Values::normal},
    {"x + s", [](const Tensor& x) { return x + 1.5; }, Values::normal},
    {"s + x", [](const Tensor& x) { return 1.5 + x; }, Values::normal},
    {"x - s", [](const Tensor& x) { return x - 1.5; }, Values::normal},
    {"s - x", [](const Tensor& x) { return 1.5 - x; }, Values::normal},
    {"x * s", [](const Tensor& x) { return x * -2.5; }, Values::normal},
    {"s * x", [](const Tensor& x) { return -2.5 * x; }, Values::normal},
    {"x / s", [](const Tensor& x) { return x / 3.0; }, Values::normal},
    {"s / x", [](const Tensor& x) { return 3.0 / x; }, Values::positive},
    {"-x", [](const Tensor& x) { return -x; }, Values::normal},
    {"clone", [](const Tensor& x) { return x.clone(); }, Values::normal},
};

struct TwoOperands {
  const char* name;
  Tensor (*run)(const Tensor&, const Tensor&);
};

const TwoOperands two_operands[] = {{"add", add}, {"sub", sub}, {"mul", mul}, {"div", div}};

void add_choices(std::vector<Case>& cases) {
  struct Choice {
    Shape condition, a, b, out;
  };
  const Choice choices[] = {
      {{}, {}, {}, {}},
      {{17}, {17}, {17}, {17}},
      {{3, 33}, {3, 33}, {3, 33}, {3, 33}},
      {{3, 1}, {7}, {3, 7}, {3, 7}},
      {{7}, {2, 3, 7}, {3, 1}, {2, 3, 7}},
      {{2, 1, 1}, {}, {5}, {2, 1, 5}},
      {{2, 3, 7}, {1}, {7}, {2, 3, 7}},
      {{129}, {1}, {129}, {129}},
      {{0}, {0}, {1}, {0}},
      {{1, 4}, {0, 1}, {4}, {0, 4}},
  };
  for (const Choice& choice : choices)
    cases.push_back({.name = fmt::format("where {} {} {}", choice.condition.str(), choice.a.str(), choice.b.str()),
                     .inputs = {{choice.condition, Values::few, false}, {choice.a}, {choice.b, Values::positive}},
                     .run = [](const Inputs& in) { return where(in[0], in[1], in[2]); },
                     .shape = choice.out});
  for (const DType dtype : {DType::int32, DType::int64})
    cases.push_back({.name = fmt::format("where, condition {}", name_of(dtype)),
                     .inputs = {ids({0, 1, -2, 0, INT32_MAX}, {5}, dtype), {{3, 5}}, {{5}}},
                     .run = [](const Inputs& in) { return where(in[0], in[1], in[2]); },
                     .shape = {3, 5}});
  for (const bool left : {true, false})
    cases.push_back({.name = fmt::format("where with a constant on the {}", left ? "left" : "right"),
                     .inputs = {{{7}, Values::few, false}, {{7}, Values::normal, !left}, {{7}, Values::normal, left}},
                     .run = [](const Inputs& in) { return where(in[0], in[1], in[2]); },
                     .shape = {7}});
  cases.push_back({.name = "where of x and x",
                   .inputs = {{{7}, Values::few, false}, {{7}}},
                   .run = [](const Inputs& in) { return where(in[0], in[1], in[1]); },
                   .shape = {7}});
}

}  // namespace

void add_elementwise(std::vector<Case>& cases) {
  const Shape shapes[] = {{}, {1}, {3}, {7}, {17}, {129}, {0}, {2, 0, 3}, {4, 33}};
  for (const OneOperand& op : one_operand)
    for (const Shape& shape : shapes)
      cases.push_back({.name = fmt::format("{} {}", op.name, shape.str()),
                       .inputs = {{shape, op.values}},
                       .run = [run = op.run](const Inputs& in) { return run(in[0]); },
                       .shape = shape});

  struct Pair {
    Shape a, b, out;
  };
  const Pair pairs[] = {
      {{}, {}, {}},
      {{1}, {1}, {1}},
      {{17}, {17}, {17}},
      {{3, 7}, {3, 7}, {3, 7}},
      {{2, 3, 4}, {4}, {2, 3, 4}},
      {{2, 3, 4}, {1, 4}, {2, 3, 4}},
      {{2, 3, 4}, {3, 1}, {2, 3, 4}},
      {{2, 3, 4}, {1, 3, 1}, {2, 3, 4}},
      {{2, 3, 4}, {2, 1, 1}, {2, 3, 4}},
      {{2, 3, 4}, {}, {2, 3, 4}},
      {{2, 3, 4}, {1}, {2, 3, 4}},
      {{4}, {2, 3, 4}, {2, 3, 4}},
      {{3, 1}, {2, 3, 4}, {2, 3, 4}},
      {{}, {7}, {7}},
      {{5, 1}, {1, 7}, {5, 7}},
      {{2, 1, 3, 1}, {4, 1, 5}, {2, 4, 3, 5}},
      {{31, 3}, {3}, {31, 3}},
      {{32, 3}, {3}, {32, 3}},
      {{33, 3}, {3}, {33, 3}},
      {{3, 33}, {3, 1}, {3, 33}},
      {{129}, {1}, {129}},
      {{0}, {0}, {0}},
      {{0, 4}, {1, 4}, {0, 4}},
      {{2, 0}, {2, 1}, {2, 0}},
      {{0, 1}, {1, 4}, {0, 4}},
      {{2, 1, 0}, {2, 3, 0}, {2, 3, 0}},
  };
  add_choices(cases);
  for (const TwoOperands& op : two_operands) {
    for (const Pair& pair : pairs)
      cases.push_back(
          {.name = fmt::format("{} {} {}", op.name, pair.a.str(), pair.b.str()),
           .inputs = {{pair.a}, {pair.b, op.run == two_operands[3].run ? Values::positive : Values::normal}},
           .run = [run = op.run](const Inputs& in) { return run(in[0], in[1]); },
           .shape = pair.out});
    cases.push_back({.name = fmt::format("{} of x and x", op.name),
                     .inputs = {{{7}}},
                     .run = [run = op.run](const Inputs& in) { return run(in[0], in[0]); },
                     .shape = {7}});
    for (const bool left : {true, false})
      cases.push_back({.name = fmt::format("{} with a constant on the {}", op.name, left ? "left" : "right"),
                       .inputs = {{{3, 7}, Values::positive, !left}, {{7}, Values::positive, left}},
                       .run = [run = op.run](const Inputs& in) { return run(in[0], in[1]); },
                       .shape = {3, 7}});
  }
}

void add_reductions(std::vector<Case>& cases) {
  struct Reduction {
    const char* name;
    Tensor (*all)(const Tensor&);
    Tensor (*along)(const Tensor&, std::int64_t, bool);
    Values values;
  };
  const Reduction reductions[] = {
      {"sum", wengert::sum, wengert::sum, Values::normal},
      {"mean", wengert::mean, wengert::mean, Values::normal},
      {"max", wengert::max, wengert::max, Values::distinct},
      {"argmax", wengert::argmax, wengert::argmax, Values::distinct},
  };
  const Shape full_shapes[] = {{}, {1}, {3}, {17}, {31}, {32}, {33}, {127}, {129}, {3, 7}, {2, 3, 5}, {1, 1025}};
  struct Along {
    Shape shape;
    std::int64_t axis;
    bool keep;
    Shape out;
  };
  const Along along[] = {
      {{7}, 0, false, {}},
      {{7}, -1, true, {1}},
      {{3, 7}, 0, false, {7}},
      {{3, 7}, 1, false, {3}},
      {{3, 7}, -2, true, {1, 7}},
      {{2, 3, 5}, 1, false, {2, 5}},
      {{2, 3, 5}, 1, true, {2, 1, 5}},
      {{2, 3, 5}, -1, false, {2, 3}},
      {{33, 3}, 0, false, {3}},
      {{3, 33}, 1, false, {3}},
      {{129, 2}, 0, false, {2}},
      {{1, 17}, 0, false, {17}},
      {{0, 3}, 1, false, {0}},
      {{2, 1, 3}, 1, false, {2, 3}},
      {{2, 3, 0}, 1, false, {2, 0}},
  };
  for (const Reduction& op : reductions) {
    const bool differentiable = std::string_view(op.name) != "argmax";
    for (const Shape& shape : full_shapes)
      cases.push_back({.name = fmt::format("{} {}", op.name, shape.str()),
                       .inputs = {{shape, op.values, differentiable}},
                       .run = [run = op.all](const Inputs& in) { return run(in[0]); },
                       .shape = {},
                       .differentiable = differentiable,
                       .finite_differences = shape.numel() < 1000});
    for (const Along& at : along)
      cases.push_back(
          {.name = fmt::format("{} {} along {}{}", op.name, at.shape.str(), at.axis, at.keep ? ", kept" : ""),
           .inputs = {{at.shape, op.values, differentiable}},
           .run = [run = op.along, axis = at.axis, keep = at.keep](const Inputs& in) { return run(in[0], axis, keep); },
           .shape = at.out,
           .differentiable = differentiable});
  }
  for (const bool mean : {false, true}) {
    // Of nothing: 0, or NaN for the mean (tested by value elsewhere).
    if (!mean)
      cases.push_back({.name = "sum of nothing",
                       .inputs = {{{0}}},
                       .run = [](const Inputs& in) { return wengert::sum(in[0]); },
                       .shape = {}});
    cases.push_back(
        {.name = fmt::format("{} [2, 0, 3] along 2", mean ? "mean" : "sum"),
         .inputs = {{{2, 0, 3}}},
         .run = [mean](const Inputs& in) { return mean ? wengert::mean(in[0], 2) : wengert::sum(in[0], 2); },
         .shape = {2, 0}});
  }
  cases.push_back({.name = "sum [2, 0, 3] along 1",
                   .inputs = {{{2, 0, 3}}},
                   .run = [](const Inputs& in) { return wengert::sum(in[0], 1); },
                   .shape = {2, 3}});
  for (const Shape& shape : {Shape{33}, Shape{4, 17}})
    cases.push_back({.name = fmt::format("max {} with ties", shape.str()),
                     .inputs = {{shape, Values::few}},
                     .run = [](const Inputs& in) { return wengert::max(in[0], -1, true); },
                     .shape = shape.with(-1, 1),
                     .finite_differences = false});
}

void add_shapes(std::vector<Case>& cases) {
  const auto one = [&](const char* name, const Shape& from, const Shape& to, std::function<Tensor(const Tensor&)> run) {
    cases.push_back({.name = fmt::format("{} {}", name, from.str()),
                     .inputs = {{from}},
                     .run = [run = std::move(run)](const Inputs& in) { return run(in[0]); },
                     .shape = to});
  };
  one("reshape to [6, -1]", {2, 3, 7}, {6, 7}, [](const Tensor& x) { return reshape(x, {6, -1}); });
  one("reshape to []", {1, 1}, {}, [](const Tensor& x) { return reshape(x, Shape{}); });
  one("reshape to the same", {3, 7}, {3, 7}, [](const Tensor& x) { return reshape(x, {3, 7}); });
  one("reshape to [0, 5]", {5, 0, 2}, {0, 5}, [](const Tensor& x) { return reshape(x, {0, 5}); });
  one("transpose 0 1", {3, 7}, {7, 3}, [](const Tensor& x) { return transpose(x, 0, 1); });
  one("transpose -1 -2", {2, 33, 3}, {2, 3, 33}, [](const Tensor& x) { return transpose(x, -1, -2); });
  one("transpose 0 0", {3, 7}, {3, 7}, [](const Tensor& x) { return transpose(x, 0, 0); });
  one("transpose 0 1", {0, 3}, {3, 0}, [](const Tensor& x) { return transpose(x, 0, 1); });
  one("permute 2 0 1", {2, 3, 5}, {5, 2, 3}, [](const Tensor& x) { return permute(x, {2, 0, 1}); });
  one("permute -1 1 0 2", {2, 1, 3, 7}, {7, 1, 2, 3}, [](const Tensor& x) { return permute(x, {-1, 1, 0, 2}); });
  one("permute of a scalar", {}, {}, [](const Tensor& x) { return permute(x, std::initializer_list<std::int64_t>{}); });
  one("slice 0 1:3", {5, 3}, {2, 3}, [](const Tensor& x) { return slice(x, 0, 1, 3); });
  one("slice 1 2:", {3, 7}, {3, 5}, [](const Tensor& x) { return slice(x, 1, 2); });
  one("slice -1 -3:-1", {2, 17}, {2, 2}, [](const Tensor& x) { return slice(x, -1, -3, -1); });
  one("slice 0 -100:100", {7}, {7}, [](const Tensor& x) { return slice(x, 0, -100, 100); });
  one("slice 0 4:2", {7, 2}, {0, 2}, [](const Tensor& x) { return slice(x, 0, 4, 2); });
  one("slice 1 0:1", {2, 3, 5}, {2, 1, 5}, [](const Tensor& x) { return slice(x, 1, 0, 1); });
  one("broadcast_to [2, 3, 4]", {3, 1}, {2, 3, 4}, [](const Tensor& x) { return broadcast_to(x, {2, 3, 4}); });
  one("broadcast_to [129]", {1}, {129}, [](const Tensor& x) { return broadcast_to(x, {129}); });
  one("broadcast_to [0, 4]", {1, 4}, {0, 4}, [](const Tensor& x) { return broadcast_to(x, {0, 4}); });
  one("broadcast_to the same", {3}, {3}, [](const Tensor& x) { return broadcast_to(x, {3}); });

  const auto join = [&](const char* name, const std::vector<Shape>& shapes, std::int64_t axis, const Shape& out) {
    Case join_case{.name = fmt::format("concat {}", name), .inputs = {}, .run = {}, .shape = out};
    for (const Shape& shape : shapes) join_case.inputs.push_back({shape});
    join_case.run = [axis](const Inputs& in) { return concat(std::span(in), axis); };
    cases.push_back(std::move(join_case));
  };
  join("of one", {{3}}, 0, {3});
  join("rows", {{2, 3}, {1, 3}, {4, 3}}, 0, {7, 3});
  join("columns", {{2, 3}, {2, 0}, {2, 17}}, 1, {2, 20});
  join("the middle axis", {{2, 1, 3}, {2, 4, 3}}, -2, {2, 5, 3});
  join("of seventeen", std::vector<Shape>(17, Shape{2}), 0, {34});
  cases.push_back({.name = "concat of x and x",
                   .inputs = {{{3, 2}}},
                   .run =
                       [](const Inputs& in) {
                         return concat({in[0], in[0]}, 1);
                       },
                   .shape = {3, 4}});
  cases.push_back({.name = "transpose of ids",
                   .inputs = {ids({1, 2, 3, 4, 5, 6}, {2, 3})},
                   .run = [](const Inputs& in) { return transpose(in[0], 0, 1); },
                   .shape = {3, 2},
                   .differentiable = false});
  cases.push_back({.name = "concat and slice of int32 ids",
                   .inputs = {ids({1, 2, 3}, {3}, DType::int32), ids({4, 5}, {2}, DType::int32)},
                   .run =
                       [](const Inputs& in) {
                         return slice(concat({in[0], in[1]}), 0, 1, -1);
                       },
                   .shape = {3},
                   .differentiable = false});
}

}  // namespace wengert::cases
