// Optimiser steps.

#include <cmath>

#include "wengert/backends/reference.hpp"
#include "wengert/bits.hpp"

namespace wengert::reference {

namespace {

// Calls f<flags...>(): the loops inside know their branches, and can be vectorised.
template <bool... known, class F>
void with_flags(F f) {
  f.template operator()<known...>();
}
template <bool... known, class F, class... Flags>
void with_flags(F f, bool flag, Flags... flags) {
  flag ? with_flags<known..., true>(f, flags...) : with_flags<known..., false>(f, flags...);
}

// Calls span(first, count, g) for the stretches of elements that a step touches, where g(i) is the gradient of element
// first + i: +0 in rows that are absent.
template <class T, class Span>
void over_gradient(const Gradient& grad, const Tensor& param, bool skip_absent, Span span) {
  const auto values_at = [](const T* values) { return [values](std::int64_t i) { return values[i]; }; };
  if (grad.is_dense()) return span(0, param.numel(), values_at(read<T>(grad.tensor())));
  const std::int64_t d = param.size(1), count = grad.rows().count();
  const auto* ids = read<std::int64_t>(grad.rows().ids);
  const T* rows = read<T>(grad.rows().rows);
  std::int64_t next = 0;  // first row that has not been stepped
  const auto absent_before = [&](std::int64_t row) {
    if (!skip_absent && row > next) span(next * d, (row - next) * d, [](std::int64_t) { return T(0); });
    next = row + 1;
  };
  for (std::int64_t k = 0; k < count; ++k) {
    absent_before(ids[k]);
    span(ids[k] * d, d, values_at(rows + k * d));
  }
  absent_before(param.size(0));
}

// The scalars come by value, so that the compiler knows that no store changes them.
template <bool has_momentum, bool nesterov, bool has_decay, class T, class G>
void sgd_span(bits::SgdScalars<T> s, G g, std::int64_t n, T* __restrict p, T* __restrict buffer) {
  s.has_momentum = has_momentum, s.nesterov = nesterov, s.has_decay = has_decay;
  for (std::int64_t i = 0; i < n; ++i) bits::sgd_element(s, g(i), p[i], has_momentum ? buffer + i : nullptr);
}
template <bool has_decay, bool decoupled, class T, class G>
void adam_span(bits::AdamScalars<T> s, G g, std::int64_t n, T* __restrict p, T* __restrict m, T* __restrict v) {
  s.has_decay = has_decay, s.decoupled = decoupled;
  for (std::int64_t i = 0; i < n; ++i) bits::adam_element(s, g(i), p[i], m[i], v[i]);
}

}  // namespace

template <class T>
void Kernels<T>::sgd_step(const SgdStep& step, const Gradient& grad, Tensor& param, Tensor& momentum) {
  const bits::SgdScalars<T> scalars(step);
  T* params = write<T>(param);
  T* buffers = scalars.has_momentum ? write<T>(momentum) : nullptr;
  // Without momentum and decay an absent row would become p - lr * 0, which is p.
  const bool no_op =
      !scalars.has_momentum && !scalars.has_decay && std::isfinite(scalars.lr) && !std::signbit(scalars.lr);
  with_flags(
      [&]<bool has_momentum, bool nesterov, bool has_decay>() {
        over_gradient<T>(grad, param, step.lazy_rows || no_op, [&](std::int64_t first, std::int64_t n, auto g) {
          sgd_span<has_momentum, nesterov, has_decay>(scalars, g, n, params + first,
                                                      has_momentum ? buffers + first : nullptr);
        });
      },
      scalars.has_momentum, scalars.nesterov, scalars.has_decay);
}

template <class T>
void Kernels<T>::adam_step(const AdamStep& step, const Gradient& grad, Tensor& param, Tensor& m, Tensor& v) {
  const bits::AdamScalars<T> scalars(step);
  T* params = write<T>(param);
  T* means = write<T>(m);
  T* squares = write<T>(v);
  with_flags(
      [&]<bool has_decay, bool decoupled>() {
        over_gradient<T>(grad, param, step.lazy_rows, [&](std::int64_t first, std::int64_t n, auto g) {
          adam_span<has_decay, decoupled>(scalars, g, n, params + first, means + first, squares + first);
        });
      },
      scalars.has_decay, scalars.decoupled);
}

#define WENGERT_INSTANTIATE(T)                                                           \
  template void Kernels<T>::sgd_step(const SgdStep&, const Gradient&, Tensor&, Tensor&); \
  template void Kernels<T>::adam_step(const AdamStep&, const Gradient&, Tensor&, Tensor&, Tensor&);
WENGERT_INSTANTIATE(float)
WENGERT_INSTANTIATE(double)
#undef WENGERT_INSTANTIATE

}  // namespace wengert::reference
