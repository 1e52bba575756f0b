#pragma once
// Softmax and cross-entropy, shifted by the largest value of the row. As in PyTorch, a row of -inf alone, or with +inf
// or NaN in it, gives NaN.

#include <cmath>
#include <limits>

#include "kernels.hpp"
#include "team.cuh"

namespace wengert::cuda::inline WENGERT_CUDA_BUILD {

/// The larger one; a NaN shows up in the sum.
template <class T>
struct Larger {
  __device__ static T join(T earlier, T later) { return later > earlier ? later : earlier; }
};

template <class Team, class T>
__device__ T largest(const T* row, std::int64_t n) {
  T mine = -std::numeric_limits<T>::infinity();
  for (std::int64_t c = Team::rank(); c < n; c += Team::threads) mine = Larger<T>::join(mine, row[c]);
  return Team::template join<Larger<T>>(mine);
}

template <class Team, class T>
__global__ void softmax_kernel(const T* x, std::int64_t rows, std::int64_t n, bool log, T* out) {
  for (std::int64_t r = Team::first_row(); r < rows; r += Team::teams()) {
    const T* row = x + r * n;
    const T shift = largest<Team>(row, n);
    const T sum = Team::template sum<T>(n, [=](std::int64_t c) { return std::exp(row[c] - shift); });
    const T log_sum = std::log(sum);
    for (std::int64_t c = Team::rank(); c < n; c += Team::threads)
      out[r * n + c] = log ? (row[c] - shift) - log_sum : std::exp(row[c] - shift) / sum;
  }
}

/// d softmax: y (g - sum(g y)); d log softmax: g - exp(y) sum(g).
template <class Team, class T>
__global__ void softmax_backward_kernel(const T* grad, const T* y, std::int64_t rows, std::int64_t n, bool log,
                                        T* out) {
  for (std::int64_t r = Team::first_row(); r < rows; r += Team::teams()) {
    const T *g = grad + r * n, *row = y + r * n;
    const T total = Team::template sum<T>(n, [=](std::int64_t c) { return log ? g[c] : g[c] * row[c]; });
    for (std::int64_t c = Team::rank(); c < n; c += Team::threads)
      out[r * n + c] = log ? g[c] - std::exp(row[c]) * total : (g[c] - total) * row[c];
  }
}

template <class Team, class T>
__global__ void cross_entropy_kernel(const T* logits, const std::int64_t* labels, std::int64_t rows, std::int64_t n,
                                     std::int64_t ignore, bool smooth, T share, T sure, T* losses, T* norms) {
  for (std::int64_t r = Team::first_row(); r < rows; r += Team::teams()) {
    const T* row = logits + r * n;
    const std::int64_t label = labels[r];
    T loss = T(0), shift = T(0), log_sum = T(0);
    if (label != ignore) {
      shift = largest<Team>(row, n);
      log_sum = std::log(Team::template sum<T>(n, [=](std::int64_t c) { return std::exp(row[c] - shift); }));
      const T score = row[label] - shift;
      loss = log_sum - score;
      if (smooth) {  // else the mean of all scores would make NaN of a -inf
        const T sum = Team::template sum<T>(n, [=](std::int64_t c) { return row[c] - shift; });
        loss = log_sum - (sure * score + share * (sum / static_cast<T>(n)));
      }
    }
    if (Team::rank() != 0) continue;
    losses[r] = loss;
    norms[2 * r] = shift;
    norms[2 * r + 1] = log_sum;
  }
}

template <class Team, class T>
__global__ void cross_entropy_backward_kernel(const T* grad, const T* logits, const std::int64_t* labels,
                                              std::int64_t rows, std::int64_t n, std::int64_t ignore, T each, T sure,
                                              const T* norms, T* out) {
  for (std::int64_t r = Team::first_row(); r < rows; r += Team::teams()) {
    const std::int64_t label = labels[r];
    const T shift = norms[2 * r], log_sum = norms[2 * r + 1], upstream = grad[r];
    for (std::int64_t c = Team::rank(); c < n; c += Team::threads) {
      const T share = (std::exp((logits[r * n + c] - shift) - log_sum) - each) - (c == label ? sure : T(0));
      out[r * n + c] = label == ignore ? T(0) : share * upstream;
    }
  }
}

template <class T>
void Kernels<T>::softmax(const Tensor& x, bool log, Tensor& out) {
  const std::int64_t n = x.size(-1), rows = n == 0 ? 0 : x.numel() / n;
  launch_rows(
      "softmax", rows, n, []<class Team>(Team) { return softmax_kernel<Team, T>; }, read<T>(x), rows, n, log,
      write<T>(out));
}

template <class T>
void Kernels<T>::softmax_backward(const Tensor& grad, const Tensor& y, bool log, Tensor& out) {
  const std::int64_t n = y.size(-1), rows = n == 0 ? 0 : y.numel() / n;
  launch_rows(
      "softmax_backward", rows, n, []<class Team>(Team) { return softmax_backward_kernel<Team, T>; }, read<T>(grad),
      read<T>(y), rows, n, log, write<T>(out));
}

template <class T>
void Kernels<T>::cross_entropy(const CrossEntropy& options, const Tensor& logits, const Tensor& labels, Tensor& losses,
                               Tensor& norms) {
  const std::int64_t rows = logits.size(0), n = logits.size(1);
  launch_rows(
      "cross_entropy", rows, n, []<class Team>(Team) { return cross_entropy_kernel<Team, T>; }, read<T>(logits),
      read<std::int64_t>(labels), rows, n, options.ignore, options.smoothing != 0.0, static_cast<T>(options.smoothing),
      static_cast<T>(1.0 - options.smoothing), write<T>(losses), write<T>(norms));
}

template <class T>
void Kernels<T>::cross_entropy_backward(const CrossEntropy& options, const Tensor& grad, const Tensor& logits,
                                        const Tensor& labels, const Tensor& norms, Tensor& out) {
  const std::int64_t rows = logits.size(0), n = logits.size(1);
  launch_rows(
      "cross_entropy_backward", rows, n, []<class Team>(Team) { return cross_entropy_backward_kernel<Team, T>; },
      read<T>(grad), read<T>(logits), read<std::int64_t>(labels), rows, n, options.ignore,
      static_cast<T>(options.smoothing / static_cast<double>(n)), static_cast<T>(1.0 - options.smoothing),
      read<T>(norms), write<T>(out));
}

}  // namespace wengert::cuda::inline WENGERT_CUDA_BUILD
