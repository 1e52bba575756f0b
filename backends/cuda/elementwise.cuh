#pragma once
// Element by element. The operation is an argument of the kernel: next to memory, a branch that all threads take alike
// costs nothing.

#include <algorithm>
#include <cmath>

#include "kernels.hpp"
#include "vector.cuh"
#include "wengert/walk.hpp"

namespace wengert::cuda::inline WENGERT_CUDA_BUILD {

// Hendrycks and Gimpel 2016, by erfc, whose relative error stays small in the negative tail. Where the factor of x is 0
// the product is 0 too, also for -inf.
template <class T>
__device__ T gelu(T x) {
  const T below = T(0.5) * std::erfc(-x * T(0.70710678118654752));
  return below == T(0) ? T(0) : x * below;
}
template <class T>
__device__ T gelu_slope(T x) {
  const T density = T(0.39894228040143268) * std::exp(T(-0.5) * x * x);
  return T(0.5) * std::erfc(-x * T(0.70710678118654752)) + (density == T(0) ? T(0) : x * density);
}
// x / (1 + exp(-2 u)): (1 + tanh(u)) / 2 would cancel in the negative tail.
template <class T>
__device__ T gelu_tanh_share(T x) {
  const T u = T(0.79788456080286536) * (x + T(0.044715) * x * x * x);
  return T(1) / (T(1) + std::exp(T(-2) * u));
}
template <class T>
__device__ T gelu_tanh(T x) {
  const T share = gelu_tanh_share(x);
  return share == T(0) ? T(0) : x * share;
}
template <class T>
__device__ T gelu_tanh_slope(T x) {
  const T share = gelu_tanh_share(x), bend = share * (T(1) - share);
  if (bend == T(0)) return share;
  return share + x * bend * T(1.5957691216057307) * (T(1) + T(0.134145) * x * x);
}

template <class T>
__device__ T apply(Unary op, T x, T s) {
  switch (op) {
    case Unary::neg: return -x;
    case Unary::square: return x * x;
    case Unary::sqrt: return std::sqrt(x);
    case Unary::exp: return std::exp(x);
    case Unary::log: return std::log(x);
    case Unary::tanh: return std::tanh(x);
    case Unary::relu: return x <= T(0) ? T(0) : x;  // NaN stays NaN
    case Unary::gelu: return gelu(x);
    case Unary::gelu_tanh: return gelu_tanh(x);
    case Unary::add_scalar: return x + s;
    case Unary::mul_scalar: return x * s;
    case Unary::div_scalar: return x / s;
    case Unary::rsub_scalar: return s - x;
    case Unary::rdiv_scalar: return s / x;
    case Unary::clamp: return x > s ? s : x < -s ? -s : x;
  }
  return x;
}

template <class T>
__device__ T apply(Binary op, T a, T b) {
  switch (op) {
    case Binary::add: return a + b;
    case Binary::sub: return a - b;
    case Binary::mul: return a * b;
    case Binary::div: return a / b;
    case Binary::equal: return a == b ? T(1) : T(0);
    case Binary::square_grad: return a * (T(2) * b);
    case Binary::sqrt_grad: return a / (T(2) * b);
    case Binary::tanh_grad: return a * (T(1) - b * b);
    case Binary::relu_grad: return b <= T(0) ? T(0) : a;
    case Binary::gelu_grad: return a * gelu_slope(b);
    case Binary::gelu_tanh_grad: return a * gelu_tanh_slope(b);
  }
  return a;
}

/// Calls f(width, e) for packs of n elements and then for single ones, until all `count` have had their turn.
template <int n, class F>
__device__ void for_each_pack(std::int64_t count, F f) {
  const std::int64_t packs = count / n;
  for (std::int64_t i = first_thread(); i < packs; i += grid_threads()) f(std::integral_constant<int, n>(), i * n);
  if constexpr (n > 1)
    for (std::int64_t e = packs * n + first_thread(); e < count; e += grid_threads())
      f(std::integral_constant<int, 1>(), e);
}

template <class T, int n>
__global__ void unary_kernel(Unary op, const T* x, T scalar, T* out, std::int64_t count) {
  for_each_pack<n>(count, [=](auto width, std::int64_t e) {
    Vec<T, width()> values = load_mutable<width()>(x + e);
    WENGERT_UNROLL
    for (int i = 0; i < width(); ++i) values.at[i] = apply(op, values.at[i], scalar);
    store(out + e, values);
  });
}

/// b repeats itself after `period` elements, a multiple of n unless it is all of them.
template <class T, int n>
__global__ void binary_kernel(Binary op, const T* a, const T* b, std::int64_t period, T* out, std::int64_t count) {
  for_each_pack<n>(count, [=](auto width, std::int64_t e) {
    Vec<T, width()> values = load_mutable<width()>(a + e);
    const Vec<T, width()> others = load_mutable<width()>(b + (period == count ? e : e % period));
    WENGERT_UNROLL
    for (int i = 0; i < width(); ++i) values.at[i] = apply(op, values.at[i], others.at[i]);
    store(out + e, values);
  });
}

template <class T, int n>
__global__ void where_kernel(const T* condition, const T* a, const T* b, T* out, std::int64_t count) {
  for_each_pack<n>(count, [=](auto width, std::int64_t e) {
    const Vec<T, width()> chosen = load_mutable<width()>(condition + e), yes = load_mutable<width()>(a + e),
                          no = load_mutable<width()>(b + e);
    Vec<T, width()> values;
    WENGERT_UNROLL
    for (int i = 0; i < width(); ++i) values.at[i] = chosen.at[i] != T(0) ? yes.at[i] : no.at[i];
    store(out + e, values);
  });
}

template <class T, class I>
__global__ void broadcast_kernel(Binary op, Walk walk, const T* a, const T* b, T* out, std::int64_t count) {
  for (std::int64_t e = first_thread(); e < count; e += grid_threads()) {
    I rest = static_cast<I>(e);
    std::int64_t at_a = 0, at_b = 0;
    for (std::int64_t axis = 0; axis < walk.rank; ++axis) {
      const I extent = static_cast<I>(walk.extents[axis]), i = rest % extent;
      rest /= extent;
      at_a += static_cast<std::int64_t>(i) * walk.a[axis];
      at_b += static_cast<std::int64_t>(i) * walk.b[axis];
    }
    out[e] = apply(op, a[at_a], b[at_b]);
  }
}

template <class T>
void Kernels<T>::unary(Unary op, const Tensor& x, double scalar, Tensor& out) {
  const T* from = read<T>(x);
  T* to = write<T>(out);
  with_width<T>(aligned(from, to), [&](auto n) {
    launch({"unary", blocks_for(out.numel(), block_threads * n)}, unary_kernel<T, n>, op, from, static_cast<T>(scalar),
           to, out.numel());
  });
}

template <class T>
void Kernels<T>::binary(Binary op, const Tensor& a, const Tensor& b, Tensor& out) {
  const T* left = read<T>(a);
  const T* right = read<T>(b);
  T* to = write<T>(out);
  const std::int64_t count = out.numel();
  if (count == 0) return;
  const Walk walk(out.shape(), a.shape(), b.shape());
  // One operand whole, the other too, or repeated from its start.
  const bool whole = walk.rank == 1 && walk.a[0] == 1 && walk.b[0] == 1;
  const bool repeated =
      walk.rank == 2 && walk.a[0] == 1 && walk.b[0] == 1 && walk.a[1] == walk.extents[0] && walk.b[1] == 0;
  if (whole || repeated) {
    const std::int64_t period = walk.extents[0];
    with_width<T>(aligned(left, right, to) && (whole || period % pack<T> == 0), [&](auto n) {
      launch({"binary", blocks_for(count, block_threads * n)}, binary_kernel<T, n>, op, left, right, period, to, count);
    });
    return;
  }
  with_index(count, [&](auto index) {
    launch({"broadcast", blocks_of_threads(count)}, broadcast_kernel<T, decltype(index)>, op, walk, left, right, to,
           count);
  });
}

template <class T>
void Kernels<T>::where(const Tensor& condition, const Tensor& a, const Tensor& b, Tensor& out) {
  const T *chosen = read<T>(condition), *yes = read<T>(a), *no = read<T>(b);
  T* to = write<T>(out);
  with_width<T>(aligned(chosen, yes, no, to), [&](auto n) {
    launch({"where", blocks_for(out.numel(), block_threads * n)}, where_kernel<T, n>, chosen, yes, no, to, out.numel());
  });
}

}  // namespace wengert::cuda::inline WENGERT_CUDA_BUILD
