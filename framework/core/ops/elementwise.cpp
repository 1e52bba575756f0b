#include <fmt/format.h>

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
Tensor gelu(const Tensor& x, Approximate approximate) {
  if (approximate == Approximate::tanh) return map("gelu", Unary::gelu_tanh, x, Keep::input, Binary::gelu_tanh_grad);
  return map("gelu", Unary::gelu, x, Keep::input, Binary::gelu_grad);
}

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  check_defined("where", {&condition, &a, &b});
  check_operands("where", a, b);
  check_same_backend("where", condition, a);
  if (is_floating(condition.dtype()) && condition.dtype() != a.dtype())
    throw DTypeError(fmt::format("where: the condition must be int32, int64 or {}, got {}", name_of(a.dtype()),
                                 name_of(condition.dtype())));
  const Shape shape = broadcast("where", condition.shape(), broadcast("where", a.shape(), b.shape()));
  const bool recorded = needs_record("where", {a, b});
  const Tensor chosen = expand(condition.detach().to(a.dtype()), shape);
  Tensor out = empty(shape, a);
  out.kernels().where(chosen, expand(a, shape), expand(b, shape), out);
  if (!recorded) return out;
  return record("where", out, {a, b}, {chosen}, [sa = a.shape(), sb = b.shape()](BackwardStep& step) {
    const Tensor& grad = step.grad();
    const Tensor nothing = zeros(grad.shape(), grad);
    const auto share = [&](bool first) {
      Tensor part = empty(grad.shape(), grad);
      part.kernels().where(step.saved()[0], first ? grad : nothing, first ? nothing : grad, part);
      return part;
    };
    if (step.needs(0)) step.give(0, sum_to(share(true), sa));
    if (step.needs(1)) step.give(1, sum_to(share(false), sb));
  });
}

}  // namespace wengert
