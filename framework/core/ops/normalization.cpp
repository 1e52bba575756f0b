#include <fmt/format.h>

#include "check.hpp"

namespace wengert {

using namespace detail;

namespace {

void check_affine(const char* what, const Tensor& parameter, const Tensor& x, const Shape& shape) {
  if (!parameter.defined()) return;
  check_operands("layer_norm", x, parameter);
  if (!(parameter.shape() == shape))
    throw ShapeError(
        fmt::format("layer_norm: the {} must have shape {}, got {}", what, shape.str(), parameter.shape().str()));
}

}  // namespace

Tensor layer_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight, const Tensor& bias,
                  double eps) {
  check_operand("layer_norm", x);
  if (!(eps >= 0.0)) throw ValueError(fmt::format("layer_norm: eps is {}; it must not be negative", eps));
  const std::int64_t lead = x.dim() - normalized_shape.rank();
  if (normalized_shape.rank() == 0) throw ShapeError("layer_norm: normalized_shape must have an axis at least, got []");
  if (lead < 0 || !(x.shape().sub(lead, x.dim()) == normalized_shape))
    throw ShapeError(fmt::format("layer_norm: shape {} does not end with normalized_shape {}", x.shape().str(),
                                 normalized_shape.str()));
  check_affine("weight", weight, x, normalized_shape);
  check_affine("bias", bias, x, normalized_shape);

  const std::int64_t n = normalized_shape.numel();
  const Shape matrix{x.shape().product(0, lead), n}, row{n};
  const auto flat = [&](const Tensor& parameter) { return parameter.defined() ? view(parameter, row) : parameter; };
  Tensor out = empty(matrix, x), stats = empty({matrix[0], 2}, x);
  out.kernels().normalize_rows(view(x, matrix), flat(weight), flat(bias), eps, out, stats);
  Tensor result = view(out, x.shape());
  if (!needs_record("layer_norm", {x, weight, bias})) return result;
  return record("layer_norm", result, {x, weight, bias}, {x, weight, stats},
                [matrix, row, normalized_shape](BackwardStep& step) {
                  const Tensor &from = step.saved()[0], &scale = step.saved()[1];
                  Tensor grads[3];
                  const auto wanted = [&](std::size_t i, const Shape& shape) -> Tensor* {
                    if (!step.needs(i)) return nullptr;
                    grads[i] = empty(shape, from);
                    return &grads[i];
                  };
                  Tensor *of_x = wanted(0, matrix), *of_weight = wanted(1, row), *of_bias = wanted(2, row);
                  from.kernels().normalize_rows_backward(view(step.grad(), matrix), view(from, matrix),
                                                         scale.defined() ? view(scale, row) : scale, step.saved()[2],
                                                         of_x, of_weight, of_bias);
                  if (of_x) step.give(0, view(grads[0], from.shape()));
                  if (of_weight) step.give(1, view(grads[1], normalized_shape));
                  if (of_bias) step.give(2, view(grads[2], normalized_shape));
                });
}

}  // namespace wengert
