#include "check.hpp"

namespace wengert {

using namespace detail;

namespace {

enum class Keep { input, output };

// out = op(x), whose derivative is read off its input or its output: grad_x = derivative(grad, kept).
Tensor map(const char* op, Unary forward, const Tensor& x, Keep keep, Binary derivative) {
  check_operand(op, x);
  Tensor out = unary(forward, x);
  if (!needs_record(op, {x})) return out;
  return record(op, out, {x}, {keep == Keep::input ? x : out},
                [derivative](BackwardStep& step) { step.give(0, binary(derivative, step.grad(), step.saved()[0])); });
}

}  // namespace

Tensor neg(const Tensor& x) {
  check_operand("neg", x);
  Tensor out = unary(Unary::neg, x);
  if (!needs_record("neg", {x})) return out;
  return record("neg", out, {x}, {}, [](BackwardStep& step) { step.give(0, unary(Unary::neg, step.grad())); });
}

Tensor square(const Tensor& x) { return map("square", Unary::square, x, Keep::input, Binary::square_grad); }
Tensor sqrt(const Tensor& x) { return map("sqrt", Unary::sqrt, x, Keep::output, Binary::sqrt_grad); }
Tensor exp(const Tensor& x) { return map("exp", Unary::exp, x, Keep::output, Binary::mul); }
Tensor log(const Tensor& x) { return map("log", Unary::log, x, Keep::input, Binary::div); }
Tensor tanh(const Tensor& x) { return map("tanh", Unary::tanh, x, Keep::output, Binary::tanh_grad); }
Tensor relu(const Tensor& x) { return map("relu", Unary::relu, x, Keep::output, Binary::relu_grad); }

}  // namespace wengert
