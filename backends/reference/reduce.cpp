// Sums, maxima and their places.

#include <algorithm>

#include "arrays.hpp"
#include "tree.hpp"
#include "wengert/backends/reference.hpp"

namespace wengert::reference {

namespace {

// NaN is larger than any number.
template <class T>
bool exceeds(T value, T best) {
  return value > best || (value != value && best == best);
}

template <class T>
void sum(const Axis& axis, const T* x, T* out) {
  if (axis.n == 0) return std::fill_n(out, axis.outer * axis.inner, T(0)), void();
  for (std::int64_t o = 0; o < axis.outer; ++o) {
    const T* terms = x + o * axis.n * axis.inner;
    if (axis.inner == 1)
      out[o] = tree_sum<T>(axis.n, [terms](std::int64_t i) { return terms[i]; });
    else
      tree_sum_rows(
          axis.n, axis.inner, [&](std::int64_t i) { return terms + i * axis.inner; }, out + o * axis.inner);
  }
}

template <class T>
T max(const T* x, std::int64_t n) {
  T best = x[0];
  for (std::int64_t i = 1; i < n; ++i) best = exceeds(x[i], best) ? x[i] : best;
  return best;
}

template <class T>
void max(const Axis& axis, const T* x, T* out) {
  if (axis.inner == 1) {
    for (std::int64_t o = 0; o < axis.outer; ++o) out[o] = max(x + o * axis.n, axis.n);
    return;
  }
  for (std::int64_t o = 0; o < axis.outer; ++o, out += axis.inner) {
    std::copy_n(x, axis.inner, out);
    x += axis.inner;
    for (std::int64_t i = 1; i < axis.n; ++i, x += axis.inner)
      for (std::int64_t c = 0; c < axis.inner; ++c) out[c] = exceeds(x[c], out[c]) ? x[c] : out[c];
  }
}

}  // namespace

template <class T>
void Kernels<T>::reduce(Reduce op, const Axis& axis, const Tensor& x, Tensor& out) {
  const T* from = read<T>(x);
  T* to = write<T>(out);
  if (out.numel() == 0) return;
  switch (op) {
    case Reduce::sum: return sum(axis, from, to);
    case Reduce::max: return max(axis, from, to);
  }
}

template <class T>
void Kernels<T>::argmax(const Axis& axis, const Tensor& x, Tensor& out) {
  const T* values = read<T>(x);
  auto* to = write<std::int64_t>(out);
  for (std::int64_t o = 0; o < axis.outer; ++o)
    for (std::int64_t c = 0; c < axis.inner; ++c) {
      const T* column = values + o * axis.n * axis.inner + c;
      std::int64_t best = 0;
      for (std::int64_t i = 1; i < axis.n; ++i)
        if (exceeds(column[i * axis.inner], column[best * axis.inner])) best = i;
      to[o * axis.inner + c] = best;
    }
}

template <class T>
void Kernels<T>::sum_squares(const Tensor& x, Tensor& out) {
  const T* values = read<T>(x);
  *write<double>(out) = tree_sum<double>(x.numel(), [values](std::int64_t i) {
    const double value = values[i];
    return value * value;
  });
}

#define WENGERT_INSTANTIATE(T)                                                   \
  template void Kernels<T>::reduce(Reduce, const Axis&, const Tensor&, Tensor&); \
  template void Kernels<T>::argmax(const Axis&, const Tensor&, Tensor&);         \
  template void Kernels<T>::sum_squares(const Tensor&, Tensor&);
WENGERT_INSTANTIATE(float)
WENGERT_INSTANTIATE(double)
#undef WENGERT_INSTANTIATE

}  // namespace wengert::reference
