// Softmax and cross-entropy, row by row, shifted by the largest value of the row. As in PyTorch, a row of -inf alone,
// or with +inf or NaN in it, gives NaN.

#include <algorithm>
#include <cmath>
#include <limits>

#include "tree.hpp"
#include "wengert/backends/reference.hpp"

namespace wengert::reference {

namespace {

template <class T>
T largest(const T* row, std::int64_t n) {
  T best = -std::numeric_limits<T>::infinity();
  for (std::int64_t c = 0; c < n; ++c) best = row[c] > best ? row[c] : best;  // a NaN shows up in the sum
  return best;
}

}  // namespace

template <class T>
void Kernels<T>::softmax(const Tensor& x, bool log, Tensor& out) {
  const std::int64_t n = x.size(-1), rows = n == 0 ? 0 : x.numel() / n;
  const T* row = read<T>(x);
  T* to = write<T>(out);
  for (std::int64_t r = 0; r < rows; ++r, row += n, to += n) {
    const T shift = largest(row, n);
    if (log) {
      const T sum = bits::tree_sum<T>(n, [&](std::int64_t c) { return std::exp(row[c] - shift); });
      const T log_sum = std::log(sum);
      for (std::int64_t c = 0; c < n; ++c) to[c] = (row[c] - shift) - log_sum;
    } else {
      for (std::int64_t c = 0; c < n; ++c) to[c] = std::exp(row[c] - shift);
      const T sum = tree_sum<T>(n, [&](std::int64_t c) { return to[c]; });
      for (std::int64_t c = 0; c < n; ++c) to[c] = to[c] / sum;
    }
  }
}

template <class T>
void Kernels<T>::cross_entropy(const Tensor& logits, const Tensor& labels, std::int64_t ignore, Tensor& losses,
                               Tensor& norms) {
  const std::int64_t rows = logits.size(0), n = logits.size(1);
  const T* row = read<T>(logits);
  const auto* label = read<std::int64_t>(labels);
  T* loss = write<T>(losses);
  T* norm = write<T>(norms);
  for (std::int64_t r = 0; r < rows; ++r, row += n, norm += 2) {
    if (label[r] == ignore) {
      loss[r] = norm[0] = norm[1] = T(0);
      continue;
    }
    norm[0] = largest(row, n);
    norm[1] = std::log(bits::tree_sum<T>(n, [&](std::int64_t c) { return std::exp(row[c] - norm[0]); }));
    loss[r] = norm[1] - (row[label[r]] - norm[0]);
  }
}

template <class T>
void Kernels<T>::cross_entropy_backward(const Tensor& grad, const Tensor& logits, const Tensor& labels,
                                        std::int64_t ignore, const Tensor& norms, Tensor& out) {
  const std::int64_t rows = logits.size(0), n = logits.size(1);
  const T* upstream = read<T>(grad);
  const T* row = read<T>(logits);
  const auto* label = read<std::int64_t>(labels);
  const T* norm = read<T>(norms);
  T* to = write<T>(out);
  for (std::int64_t r = 0; r < rows; ++r, row += n, to += n, norm += 2) {
    if (label[r] == ignore) {
      std::fill_n(to, n, T(0));
      continue;
    }
    for (std::int64_t c = 0; c < n; ++c)
      to[c] = (std::exp((row[c] - norm[0]) - norm[1]) - (c == label[r] ? T(1) : T(0))) * upstream[r];
  }
}

#define WENGERT_INSTANTIATE(T)                                                                                \
  template void Kernels<T>::softmax(const Tensor&, bool, Tensor&);                                            \
  template void Kernels<T>::cross_entropy(const Tensor&, const Tensor&, std::int64_t, Tensor&, Tensor&);      \
  template void Kernels<T>::cross_entropy_backward(const Tensor&, const Tensor&, const Tensor&, std::int64_t, \
                                                   const Tensor&, Tensor&);
WENGERT_INSTANTIATE(float)
WENGERT_INSTANTIATE(double)
#undef WENGERT_INSTANTIATE

}  // namespace wengert::reference
