#include <fmt/format.h>

#include "check.hpp"

namespace wengert {

using namespace detail;

namespace {

// What one call reduces: x seen as (outer, n, inner), and the shape of the result.
struct Plan {
  Axis axis;
  Shape out;
  Shape kept;  // of the result, with the axis still there: it broadcasts against x
};

Plan over_all(const char* op, const Tensor& x) {
  check_operand(op, x);
  Plan plan{{1, x.numel(), 1}, {}, {}};
  return plan;
}

Plan over_axis(const char* op, const Tensor& x, std::int64_t axis, bool keepdim) {
  check_operand(op, x);
  axis = check_axis(op, x.shape(), axis);
  const Shape kept = x.shape().with(axis, 1);
  return {axis_of(x.shape(), axis), keepdim ? kept : x.shape().without(axis), kept};
}

void check_not_empty(const char* op, const Tensor& x, const Plan& plan) {
  if (plan.axis.n == 0) throw ShapeError(fmt::format("{}: shape {} has nothing to choose from", op, x.shape().str()));
}

Tensor sum_over(const Tensor& x, const Plan& plan) {
  Tensor out = reduce(Reduce::sum, plan.axis, x, plan.out);
  if (!needs_record("sum", {x})) return out;
  return record("sum", out, {x}, {}, [shape = x.shape(), kept = plan.kept](BackwardStep& step) {
    step.give(0, expand(view(step.grad(), kept), shape));
  });
}

Tensor mean_over(const Tensor& x, const Plan& plan) {
  const auto n = static_cast<double>(plan.axis.n);
  Tensor out = reduce(Reduce::sum, plan.axis, x, plan.out);
  out.kernels().unary(Unary::div_scalar, out, n, out);
  if (!needs_record("mean", {x})) return out;
  return record("mean", out, {x}, {}, [shape = x.shape(), kept = plan.kept, n](BackwardStep& step) {
    step.give(0, expand(view(unary(Unary::div_scalar, step.grad(), n), kept), shape));
  });
}

Tensor max_over(const Tensor& x, const Plan& plan) {
  check_not_empty("max", x, plan);
  Tensor out = reduce(Reduce::max, plan.axis, x, plan.out);
  if (!needs_record("max", {x})) return out;
  return record("max", out, {x}, {x, out}, [plan](BackwardStep& step) {
    const Tensor chosen = binary(Binary::equal, step.saved()[0], view(step.saved()[1], plan.kept));
    const Tensor ties = reduce(Reduce::sum, plan.axis, chosen, plan.kept);
    const Tensor share = binary(Binary::div, view(step.grad(), plan.kept), ties);
    step.give(0,
              binary(Binary::relu_grad, share, chosen));  // selects, so that an infinite share leaves the others at 0
  });
}

Tensor argmax_over(const Tensor& x, const Plan& plan) {
  check_not_empty("argmax", x, plan);
  Tensor out = empty(plan.out, DType::int64, x.backend());
  x.kernels().argmax(plan.axis, x, out);
  return out;
}

}  // namespace

Tensor sum(const Tensor& x) { return sum_over(x, over_all("sum", x)); }
Tensor sum(const Tensor& x, std::int64_t axis, bool keepdim) { return sum_over(x, over_axis("sum", x, axis, keepdim)); }
Tensor mean(const Tensor& x) { return mean_over(x, over_all("mean", x)); }
Tensor mean(const Tensor& x, std::int64_t axis, bool keepdim) {
  return mean_over(x, over_axis("mean", x, axis, keepdim));
}
Tensor max(const Tensor& x) { return max_over(x, over_all("max", x)); }
Tensor max(const Tensor& x, std::int64_t axis, bool keepdim) { return max_over(x, over_axis("max", x, axis, keepdim)); }
Tensor argmax(const Tensor& x) { return argmax_over(x, over_all("argmax", x)); }
Tensor argmax(const Tensor& x, std::int64_t axis, bool keepdim) {
  return argmax_over(x, over_axis("argmax", x, axis, keepdim));
}

}  // namespace wengert
