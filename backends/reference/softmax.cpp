// Softmax, cross-entropy and layer norm, row by row; the first two shifted by the largest value of the row. As in
// PyTorch, a row of -inf alone, or with +inf or NaN in it, gives NaN.

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
void Kernels<T>::cross_entropy(const CrossEntropy& options, const Tensor& logits, const Tensor& labels, Tensor& losses,
                               Tensor& norms) {
  const std::int64_t rows = logits.size(0), n = logits.size(1);
  const T* row = read<T>(logits);
  const auto* label = read<std::int64_t>(labels);
  T* loss = write<T>(losses);
  T* norm = write<T>(norms);
  const T share = static_cast<T>(options.smoothing), sure = static_cast<T>(1.0 - options.smoothing);
  for (std::int64_t r = 0; r < rows; ++r, row += n, norm += 2) {
    if (label[r] == options.ignore) {
      loss[r] = norm[0] = norm[1] = T(0);
      continue;
    }
    norm[0] = largest(row, n);
    norm[1] = std::log(bits::tree_sum<T>(n, [&](std::int64_t c) { return std::exp(row[c] - norm[0]); }));
    const T score = row[label[r]] - norm[0];
    if (options.smoothing == 0.0) {  // the mean of all scores would make NaN of a -inf
      loss[r] = norm[1] - score;
    } else {
      const T sum = bits::tree_sum<T>(n, [&](std::int64_t c) { return row[c] - norm[0]; });
      loss[r] = norm[1] - (sure * score + share * (sum / static_cast<T>(n)));
    }
  }
}

template <class T>
void Kernels<T>::cross_entropy_backward(const CrossEntropy& options, const Tensor& grad, const Tensor& logits,
                                        const Tensor& labels, const Tensor& norms, Tensor& out) {
  const std::int64_t rows = logits.size(0), n = logits.size(1);
  const T* upstream = read<T>(grad);
  const T* row = read<T>(logits);
  const auto* label = read<std::int64_t>(labels);
  const T* norm = read<T>(norms);
  T* to = write<T>(out);
  const T each = static_cast<T>(options.smoothing / static_cast<double>(n)),
          sure = static_cast<T>(1.0 - options.smoothing);
  for (std::int64_t r = 0; r < rows; ++r, row += n, to += n, norm += 2) {
    if (label[r] == options.ignore) {
      std::fill_n(to, n, T(0));
      continue;
    }
    for (std::int64_t c = 0; c < n; ++c)
      to[c] = ((std::exp((row[c] - norm[0]) - norm[1]) - each) - (c == label[r] ? sure : T(0))) * upstream[r];
  }
}

template <class T>
void Kernels<T>::normalize_rows(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps, Tensor& out,
                                Tensor& stats) {
  const std::int64_t rows = x.size(0), n = x.size(1);
  const T* row = read<T>(x);
  const T* scale = weight.defined() ? read<T>(weight) : nullptr;
  const T* shift = bias.defined() ? read<T>(bias) : nullptr;
  T* to = write<T>(out);
  T* stat = write<T>(stats);
  for (std::int64_t r = 0; r < rows; ++r, row += n, to += n, stat += 2) {
    if (n == 0) {
      stat[0] = stat[1] = T(0);
      continue;
    }
    const T first = row[0], count = static_cast<T>(n);
    const T mean = tree_sum<T>(n, [&](std::int64_t c) { return row[c] - first; }) / count;
    const T squares = tree_sum<T>(n, [&](std::int64_t c) {
      const T deviation = (row[c] - first) - mean;
      return deviation * deviation;
    });
    const T rstd = T(1) / std::sqrt(squares / count + static_cast<T>(eps));
    for (std::int64_t c = 0; c < n; ++c) {
      const T normal = ((row[c] - first) - mean) * rstd;
      to[c] = (scale ? normal * scale[c] : normal) + (shift ? shift[c] : T(0));
    }
    stat[0] = mean;
    stat[1] = rstd;
  }
}

#define WENGERT_INSTANTIATE(T)                                                                                       \
  template void Kernels<T>::softmax(const Tensor&, bool, Tensor&);                                                   \
  template void Kernels<T>::cross_entropy(const CrossEntropy&, const Tensor&, const Tensor&, Tensor&, Tensor&);      \
  template void Kernels<T>::cross_entropy_backward(const CrossEntropy&, const Tensor&, const Tensor&, const Tensor&, \
                                                   const Tensor&, Tensor&);                                          \
  template void Kernels<T>::normalize_rows(const Tensor&, const Tensor&, const Tensor&, double, Tensor&, Tensor&);
WENGERT_INSTANTIATE(float)
WENGERT_INSTANTIATE(double)
#undef WENGERT_INSTANTIATE

}  // namespace wengert::reference
