#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "check.hpp"

namespace wengert {

using namespace detail;

namespace {

// How two operands multiply: each as a stack of matrices (leading axes, rows, columns), and the shape of the product.
struct Fit {
  Shape a, b;     // with vectors made matrices; one matrix b under a stack a folds the stack into rows
  Shape product;  // of a and b
  Shape out;      // what the user gets: without the axes that vectors lack

  Fit(const Shape& left, const Shape& right);
};

// Shape of `lead` followed by a matrix.
Shape stack(const Shape& lead, std::int64_t rows, std::int64_t columns) { return (lead + rows) + columns; }

Shape broadcast_lead(const Shape& left, const Shape& right, const Shape& a, const Shape& b) {
  try {
    return broadcast("matmul", a, b);
  } catch (const ShapeError&) {
    throw ShapeError(fmt::format("matmul: shapes {} and {} do not fit: leading axes {} and {} do not broadcast",
                                 left.str(), right.str(), a.str(), b.str()));
  }
}

Fit::Fit(const Shape& left, const Shape& right) {
  const bool vector_a = left.rank() == 1, vector_b = right.rank() == 1;
  if (left.rank() == 0 || right.rank() == 0)
    throw ShapeError(
        fmt::format("matmul: shapes {} and {} do not fit: both need at least one axis", left.str(), right.str()));
  const std::int64_t m = vector_a ? 1 : left.size(-2), k = left.size(-1);
  const std::int64_t k_b = vector_b ? right.size(0) : right.size(-2), n = vector_b ? 1 : right.size(-1);
  if (k != k_b)
    throw ShapeError(fmt::format("matmul: shapes {} and {} do not fit: {} != {}", left.str(), right.str(), k, k_b));
  const Shape lead_a = left.sub(0, std::max<std::int64_t>(left.rank() - 2, 0));
  const Shape lead_b = right.sub(0, std::max<std::int64_t>(right.rank() - 2, 0));
  const Shape lead = broadcast_lead(left, right, lead_a, lead_b);
  out = lead;
  if (!vector_a) out = out + m;
  if (!vector_b) out = out + n;
  if (lead_b.numel() == 1) {
    a = {lead_a.numel() * m, k};
    b = {k, n};
    product = {lead_a.numel() * m, n};
  } else {
    a = stack(lead_a, m, k);
    b = stack(lead_b, k, n);
    product = stack(lead, m, n);
  }
}

// Product of stacks of matrices, either one transposed, with broadcast leading axes. Not recorded.
Tensor multiply(const Tensor& a, bool trans_a, const Tensor& b, bool trans_b) {
  const Shape lead_a = a.shape().sub(0, a.dim() - 2), lead_b = b.shape().sub(0, b.dim() - 2);
  const Shape lead = broadcast("matmul", lead_a, lead_b);
  Matmul shape;
  shape.batch = lead.numel();
  shape.m = a.size(trans_a ? -1 : -2);
  shape.k = a.size(trans_a ? -2 : -1);
  shape.n = b.size(trans_b ? -2 : -1);
  shape.trans_a = trans_a;
  shape.trans_b = trans_b;
  shape.share_a = lead_a.numel() == 1 && shape.batch != 1;
  shape.share_b = lead_b.numel() == 1 && shape.batch != 1;
  // What is neither whole nor one matrix is repeated in memory: rare enough.
  const auto whole = [&](const Tensor& x, const Shape& own) {
    return own.numel() == lead.numel() || own.numel() == 1 ? x : expand(x, stack(lead, x.size(-2), x.size(-1)));
  };
  Tensor out = empty(stack(lead, shape.m, shape.n), a);
  out.kernels().matmul(shape, whole(a, lead_a), whole(b, lead_b), out);
  return out;
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b) {
  check_operands("matmul", a, b);
  const Fit fit(a.shape(), b.shape());
  Tensor out = view(multiply(view(a, fit.a), false, view(b, fit.b), false), fit.out);
  if (!needs_record("matmul", {a, b})) return out;
  const Saved saved{b.requires_grad() ? a : Tensor(), a.requires_grad() ? b : Tensor()};
  return record("matmul", out, {a, b}, saved, [sa = a.shape(), sb = b.shape()](BackwardStep& step) {
    const Fit back(sa, sb);
    const Tensor grad = view(step.grad(), back.product);
    if (step.needs(0)) {
      const Tensor each = multiply(grad, false, view(step.saved()[1], back.b), true);
      step.give(0, view(sum_to(each, back.a), sa));
    }
    if (step.needs(1)) {
      const Tensor each = multiply(view(step.saved()[0], back.a), true, grad, false);
      step.give(1, view(sum_to(each, back.b), sb));
    }
  });
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check_operands("linear", x, weight);
  check_rank("linear", "the weight", weight, 2, "(out, in)");
  const std::int64_t in = weight.size(1), out_width = weight.size(0);
  if (x.dim() == 0 || x.size(-1) != in)
    throw ShapeError(fmt::format("linear: input {} and weight {} do not fit: the last axis must be {}", x.shape().str(),
                                 weight.shape().str(), in));
  if (bias.defined()) {
    check_operands("linear", weight, bias);
    if (!(bias.shape() == Shape{out_width}))
      throw ShapeError(fmt::format("linear: bias {} and weight {} do not fit: the bias must be [{}]",
                                   bias.shape().str(), weight.shape().str(), out_width));
  }
  const Shape lead = x.shape().sub(0, x.dim() - 1);
  const std::int64_t rows = lead.numel();
  Tensor flat = empty({rows, out_width}, x);
  flat.kernels().linear(view(x, {rows, in}), weight, bias, flat);
  Tensor out = view(flat, lead + out_width);
  const Tensor operands[] = {x, weight, bias};
  const std::span<const Tensor> inputs(operands, bias.defined() ? 3 : 2);
  if (!needs_record("linear", inputs)) return out;
  const Saved saved{weight.requires_grad() ? x : Tensor(), x.requires_grad() ? weight : Tensor()};
  return record("linear", out, inputs, saved,
                [shape = x.shape(), rows, in, out_width, biased = bias.defined()](BackwardStep& step) {
                  const Tensor grad = view(step.grad(), {rows, out_width});
                  if (step.needs(0)) step.give(0, view(multiply(grad, false, step.saved()[1], false), shape));
                  if (step.needs(1)) step.give(1, multiply(grad, true, view(step.saved()[0], {rows, in}), false));
                  if (biased && step.needs(2))
                    step.give(2, reduce(Reduce::sum, {1, rows, out_width}, grad, {out_width}));
                });
}

}  // namespace wengert
