#include "check.hpp"

namespace wengert {

using namespace detail;

Tensor dropout(const Tensor& x, double p, bool training) {
  check_operand("dropout", x);
  check_probability("dropout", p);
  if (!training || p == 0.0) return x;
  const bool recorded = needs_record("dropout", {x});  // before the draw: it may throw
  const Dropout drawing = draw_dropout(p, training, x.numel());
  Tensor out = empty(x.shape(), x);
  Saved saved;
  out.kernels().dropout(x, drawing, out, saved);
  if (!recorded) return out;
  return record("dropout", out, {x}, saved, [drawing](BackwardStep& step) {
    Tensor grad = empty(step.grad().shape(), step.grad());
    grad.kernels().dropout_backward(step.grad(), drawing, step.saved(), grad);
    step.give(0, grad);
  });
}

}  // namespace wengert
