// Element by element: one scalar function an operation, applied by xtensor.

#include <algorithm>
#include <cmath>

#include "arrays.hpp"
#include "wengert/backends/reference.hpp"
#include "wengert/walk.hpp"

namespace wengert::reference {

namespace {

// Hendrycks and Gimpel 2016. By erfc, whose relative error stays small in the negative tail, where 1 + erf cancels.
// Where the factor of x is 0 (x very negative) the product is 0 too, also for -inf.
template <class T>
T gelu(T x) {
  const T below = T(0.5) * std::erfc(-x * T(0.70710678118654752));  // Phi(x)
  return below == T(0) ? T(0) : x * below;
}
template <class T>
T gelu_slope(T x) {
  const T density = T(0.39894228040143268) * std::exp(T(-0.5) * x * x);  // of the normal distribution
  return T(0.5) * std::erfc(-x * T(0.70710678118654752)) + (density == T(0) ? T(0) : x * density);
}

// The form with tanh, written as x / (1 + exp(-2 u)): (1 + tanh(u)) / 2 would cancel in the negative tail.
template <class T>
T gelu_tanh_share(T x) {
  const T u = T(0.79788456080286536) * (x + T(0.044715) * x * x * x);
  return T(1) / (T(1) + std::exp(T(-2) * u));
}
template <class T>
T gelu_tanh(T x) {
  const T share = gelu_tanh_share(x);
  return share == T(0) ? T(0) : x * share;
}
template <class T>
T gelu_tanh_slope(T x) {
  const T share = gelu_tanh_share(x), bend = share * (T(1) - share);
  if (bend == T(0)) return share;
  return share + x * bend * T(1.5957691216057307) * (T(1) + T(0.134145) * x * x);
}

}  // namespace

template <class T>
void Kernels<T>::unary(Unary op, const Tensor& x, double scalar, Tensor& out) {
  const std::int64_t count = out.numel();
  const T* from = read<T>(x);
  T* to = write<T>(out);
  if (count == 0) return;
  const T s = static_cast<T>(scalar);
  const auto map = [&](auto f) { assign(to, count, f, flat(from, count)); };
  switch (op) {
    case Unary::neg: return map([](T a) { return -a; });
    case Unary::square: return map([](T a) { return a * a; });
    case Unary::sqrt: return map([](T a) { return std::sqrt(a); });
    case Unary::exp: return map([](T a) { return std::exp(a); });
    case Unary::log: return map([](T a) { return std::log(a); });
    case Unary::tanh: return map([](T a) { return std::tanh(a); });
    case Unary::relu: return map([](T a) { return a <= T(0) ? T(0) : a; });  // NaN stays NaN
    case Unary::gelu: return map([](T a) { return gelu(a); });
    case Unary::gelu_tanh: return map([](T a) { return gelu_tanh(a); });
    case Unary::add_scalar: return map([s](T a) { return a + s; });
    case Unary::mul_scalar: return map([s](T a) { return a * s; });
    case Unary::div_scalar: return map([s](T a) { return a / s; });
    case Unary::rsub_scalar: return map([s](T a) { return s - a; });
    case Unary::rdiv_scalar: return map([s](T a) { return s / a; });
    case Unary::clamp: return map([s](T a) { return a > s ? s : a < -s ? -s : a; });
  }
}

namespace {

template <class T, class F>
void line(F f, const T* a, std::int64_t stride_a, const T* b, std::int64_t stride_b, T* out, std::int64_t count) {
  constexpr std::int64_t few = 16;  // below this many an expression costs more than it saves
  if (count < few) {
    for (std::int64_t i = 0; i < count; ++i) out[i] = f(a[i * stride_a], b[i * stride_b]);
  } else if (stride_a != 0 && stride_b != 0) {
    assign(out, count, f, flat(a, count), flat(b, count));
  } else if (stride_a != 0) {
    const T value = *b;
    assign(
        out, count, [f, value](T x) { return f(x, value); }, flat(a, count));
  } else if (stride_b != 0) {
    const T value = *a;
    assign(
        out, count, [f, value](T x) { return f(value, x); }, flat(b, count));
  } else {
    std::fill_n(out, count, f(*a, *b));
  }
}

template <class T, class F>
void apply(F f, const Walk& walk, const T* a, const T* b, T* out) {
  std::int64_t index[Shape::max_rank] = {};
  for (;;) {
    line(f, a, walk.a[0], b, walk.b[0], out, walk.extents[0]);
    out += walk.extents[0];
    std::int64_t axis = 1;
    for (; axis < walk.rank; ++axis) {
      a += walk.a[axis];
      b += walk.b[axis];
      if (++index[axis] < walk.extents[axis]) break;
      a -= walk.a[axis] * walk.extents[axis];
      b -= walk.b[axis] * walk.extents[axis];
      index[axis] = 0;
    }
    if (axis == walk.rank) return;
  }
}

}  // namespace

template <class T>
void Kernels<T>::binary(Binary op, const Tensor& a, const Tensor& b, Tensor& out) {
  const T* left = read<T>(a);
  const T* right = read<T>(b);
  T* to = write<T>(out);
  if (out.numel() == 0) return;
  const Walk walk(out.shape(), a.shape(), b.shape());
  const auto map = [&](auto f) { apply(f, walk, left, right, to); };
  switch (op) {
    case Binary::add: return map([](T x, T y) { return x + y; });
    case Binary::sub: return map([](T x, T y) { return x - y; });
    case Binary::mul: return map([](T x, T y) { return x * y; });
    case Binary::div: return map([](T x, T y) { return x / y; });
    case Binary::equal: return map([](T x, T y) { return x == y ? T(1) : T(0); });
    case Binary::square_grad: return map([](T x, T y) { return x * (T(2) * y); });
    case Binary::sqrt_grad: return map([](T x, T y) { return x / (T(2) * y); });
    case Binary::tanh_grad: return map([](T x, T y) { return x * (T(1) - y * y); });
    case Binary::relu_grad: return map([](T x, T y) { return y <= T(0) ? T(0) : x; });
    case Binary::gelu_grad: return map([](T x, T y) { return x * gelu_slope(y); });
    case Binary::gelu_tanh_grad: return map([](T x, T y) { return x * gelu_tanh_slope(y); });
  }
}

template <class T>
void Kernels<T>::where(const Tensor& condition, const Tensor& a, const Tensor& b, Tensor& out) {
  const std::int64_t count = out.numel();
  const T *chosen = read<T>(condition), *yes = read<T>(a), *no = read<T>(b);
  T* to = write<T>(out);
  const auto choose = [](T c, T x, T y) { return c != T(0) ? x : y; };
  if (count > 0) assign(to, count, choose, flat(chosen, count), flat(yes, count), flat(no, count));
}

#define WENGERT_INSTANTIATE(T)                                                     \
  template void Kernels<T>::unary(Unary, const Tensor&, double, Tensor&);          \
  template void Kernels<T>::binary(Binary, const Tensor&, const Tensor&, Tensor&); \
  template void Kernels<T>::where(const Tensor&, const Tensor&, const Tensor&, Tensor&);
WENGERT_INSTANTIATE(float)
WENGERT_INSTANTIATE(double)
#undef WENGERT_INSTANTIATE

}  // namespace wengert::reference
