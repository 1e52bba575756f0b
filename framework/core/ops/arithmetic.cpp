#include "check.hpp"

namespace wengert {

using namespace detail;

Tensor add(const Tensor& a, const Tensor& b) {
  check_operands("add", a, b);
  Tensor out = empty(broadcast("add", a.shape(), b.shape()), a);
  out.kernels().binary(Binary::add, a, b, out);
  if (!needs_record("add", {a, b})) return out;
  return record("add", out, {a, b}, {}, [sa = a.shape(), sb = b.shape()](BackwardStep& step) {
    if (step.needs(0)) step.give(0, sum_to(step.grad(), sa));
    if (step.needs(1)) step.give(1, sum_to(step.grad(), sb));
  });
}

Tensor sub(const Tensor& a, const Tensor& b) {
  check_operands("sub", a, b);
  Tensor out = empty(broadcast("sub", a.shape(), b.shape()), a);
  out.kernels().binary(Binary::sub, a, b, out);
  if (!needs_record("sub", {a, b})) return out;
  return record("sub", out, {a, b}, {}, [sa = a.shape(), sb = b.shape()](BackwardStep& step) {
    if (step.needs(0)) step.give(0, sum_to(step.grad(), sa));
    if (step.needs(1)) step.give(1, unary(Unary::neg, sum_to(step.grad(), sb)));
  });
}

Tensor mul(const Tensor& a, const Tensor& b) {
  check_operands("mul", a, b);
  Tensor out = empty(broadcast("mul", a.shape(), b.shape()), a);
  out.kernels().binary(Binary::mul, a, b, out);
  if (!needs_record("mul", {a, b})) return out;
  // Only what a needed gradient will read: a value that is not saved may change freely.
  const Saved saved{b.requires_grad() ? a : Tensor(), a.requires_grad() ? b : Tensor()};
  return record("mul", out, {a, b}, saved, [sa = a.shape(), sb = b.shape()](BackwardStep& step) {
    if (step.needs(0)) step.give(0, sum_to(binary(Binary::mul, step.grad(), step.saved()[1]), sa));
    if (step.needs(1)) step.give(1, sum_to(binary(Binary::mul, step.grad(), step.saved()[0]), sb));
  });
}

Tensor div(const Tensor& a, const Tensor& b) {
  check_operands("div", a, b);
  Tensor out = empty(broadcast("div", a.shape(), b.shape()), a);
  out.kernels().binary(Binary::div, a, b, out);
  if (!needs_record("div", {a, b})) return out;
  const Saved saved{b.requires_grad() ? a : Tensor(), b};
  return record("div", out, {a, b}, saved, [sa = a.shape(), sb = b.shape()](BackwardStep& step) {
    const Tensor& divisor = step.saved()[1];
    const Tensor share = binary(Binary::div, step.grad(), divisor);
    if (step.needs(0)) step.give(0, sum_to(share, sa));
    if (!step.needs(1)) return;
    const Tensor quotient = binary(Binary::div, step.saved()[0], divisor);
    step.give(1, unary(Unary::neg, sum_to(binary(Binary::mul, share, quotient), sb)));
  });
}

namespace {

// out = op(x, s), whose derivative is the same for every x: grad_x = back(grad, t).
Tensor affine(const char* op, Unary forward, const Tensor& x, double s, Unary back, double t) {
  check_operand(op, x);
  Tensor out = unary(forward, x, s);
  if (!needs_record(op, {x})) return out;
  return record(op, out, {x}, {}, [back, t](BackwardStep& step) {
    const bool same = back == Unary::mul_scalar && t == 1.0;
    step.give(0, same ? step.grad() : unary(back, step.grad(), t));
  });
}

}  // namespace

Tensor add(const Tensor& a, double s) { return affine("add", Unary::add_scalar, a, s, Unary::mul_scalar, 1.0); }
Tensor sub(const Tensor& a, double s) { return affine("sub", Unary::add_scalar, a, -s, Unary::mul_scalar, 1.0); }
Tensor sub(double s, const Tensor& b) { return affine("sub", Unary::rsub_scalar, b, s, Unary::neg, 0.0); }
Tensor mul(const Tensor& a, double s) { return affine("mul", Unary::mul_scalar, a, s, Unary::mul_scalar, s); }
Tensor div(const Tensor& a, double s) { return affine("div", Unary::div_scalar, a, s, Unary::div_scalar, s); }

Tensor div(double s, const Tensor& b) {
  check_operand("div", b);
  Tensor out = unary(Unary::rdiv_scalar, b, s);
  if (!needs_record("div", {b})) return out;
  return record("div", out, {b}, {b}, [s](BackwardStep& step) {  // - grad (s / b) / b
    const Tensor& divisor = step.saved()[0];
    const Tensor quotient = unary(Unary::rdiv_scalar, divisor, -s);
    step.give(0, binary(Binary::mul, binary(Binary::div, step.grad(), divisor), quotient));
  });
}

}  // namespace wengert
