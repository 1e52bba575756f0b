#pragma once
// Layer norm. A row is measured from its first element: a constant row gives exactly the bias, and a large mean costs
// no digits.

#include <cmath>

#include "kernels.hpp"
#include "reduce.cuh"
#include "team.cuh"
#include "vector.cuh"

namespace wengert::cuda::inline WENGERT_CUDA_BUILD {

template <class Team, class T>
__global__ void normalize_kernel(const T* x, const T* weight, const T* bias, std::int64_t rows, std::int64_t n, T eps,
                                 T* out, T* stats) {
  for (std::int64_t r = Team::first_row(); r < rows; r += Team::teams()) {
    const T* row = x + r * n;
    const T first = row[0], count = static_cast<T>(n);
    const T mean = Team::template sum<T>(n, [=](std::int64_t c) { return row[c] - first; }) / count;
    const T squares = Team::template sum<T>(n, [=](std::int64_t c) {
      const T deviation = (row[c] - first) - mean;
      return deviation * deviation;
    });
    const T rstd = T(1) / std::sqrt(squares / count + eps);
    for (std::int64_t c = Team::rank(); c < n; c += Team::threads) {
      const T normal = ((row[c] - first) - mean) * rstd;
      out[r * n + c] = (weight ? normal * weight[c] : normal) + (bias ? bias[c] : T(0));
    }
    if (Team::rank() != 0) continue;
    stats[2 * r] = mean;
    stats[2 * r + 1] = rstd;
  }
}

/// d x = rstd * (h - mean(h) - normal * mean(h * normal)) with h = grad * weight.
template <class Team, class T>
__global__ void normalize_backward_kernel(const T* grad, const T* x, const T* weight, const T* stats, std::int64_t rows,
                                          std::int64_t n, T* out) {
  for (std::int64_t r = Team::first_row(); r < rows; r += Team::teams()) {
    const T *row = x + r * n, *g = grad + r * n;
    const T first = row[0], mean = stats[2 * r], rstd = stats[2 * r + 1], count = static_cast<T>(n);
    const auto normal = [=](std::int64_t c) { return ((row[c] - first) - mean) * rstd; };
    const auto scaled = [=](std::int64_t c) { return weight ? g[c] * weight[c] : g[c]; };
    const T along = Team::template sum<T>(n, [=](std::int64_t c) { return scaled(c) * normal(c); }) / count;
    const T level = Team::template sum<T>(n, scaled) / count;
    for (std::int64_t c = Team::rank(); c < n; c += Team::threads)
      out[r * n + c] = ((scaled(c) - level) - normal(c) * along) * rstd;
  }
}

/// out = grad * normal, element by element.
template <class T, class I>
__global__ void normalize_product_kernel(const T* grad, const T* x, const T* stats, std::int64_t rows, std::int64_t n,
                                         T* out) {
  for (std::int64_t e = first_thread(); e < rows * n; e += grid_threads()) {
    const auto r = static_cast<std::int64_t>(static_cast<I>(e) / static_cast<I>(n));
    out[e] = grad[e] * (((x[e] - x[r * n]) - stats[2 * r]) * stats[2 * r + 1]);
  }
}

template <class T>
void Kernels<T>::normalize_rows(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps, Tensor& out,
                                Tensor& stats) {
  const std::int64_t rows = x.size(0), n = x.size(1);
  if (n == 0) return fill(stats, 0.0);
  launch_rows(
      "normalize_rows", rows, n, []<class Team>(Team) { return normalize_kernel<Team, T>; }, read<T>(x),
      weight.defined() ? read<T>(weight) : nullptr, bias.defined() ? read<T>(bias) : nullptr, rows, n,
      static_cast<T>(eps), write<T>(out), write<T>(stats));
}

template <class T>
void Kernels<T>::normalize_rows_backward(const Tensor& grad, const Tensor& x, const Tensor& weight, const Tensor& stats,
                                         Tensor* grad_x, Tensor* grad_weight, Tensor* grad_bias) {
  const std::int64_t rows = x.size(0), n = x.size(1);
  const Axis columns{1, rows, n};
  if (grad_bias) reduce(Reduce::sum, columns, grad, *grad_bias);
  if (n == 0) return;
  if (grad_weight) {
    Tensor product = empty({rows, n}, x);
    with_index(rows * n, [&](auto index) {
      launch({"normalize_product", blocks_of_threads(rows * n)}, normalize_product_kernel<T, decltype(index)>,
             read<T>(grad), read<T>(x), read<T>(stats), rows, n, write<T>(product));
    });
    reduce(Reduce::sum, columns, product, *grad_weight);
  }
  if (grad_x)
    launch_rows(
        "normalize_backward", rows, n, []<class Team>(Team) { return normalize_backward_kernel<Team, T>; },
        read<T>(grad), read<T>(x), weight.defined() ? read<T>(weight) : nullptr, read<T>(stats), rows, n,
        write<T>(*grad_x));
}

}  // namespace wengert::cuda::inline WENGERT_CUDA_BUILD
