// Softmax and cross-entropy, row by row.

#include "parallel.hpp"
#include "table.hpp"
#include "wengert/backends/xsimd.hpp"

namespace wengert::xsimd_backend {

namespace {

constexpr std::int64_t bytes_of_exp = 32;  // an exponential takes as long as moving this many bytes

}  // namespace

void Kernels::softmax(const Tensor& x, bool log, Tensor& out) {
  const std::int64_t n = x.size(-1), rows = n == 0 ? 0 : x.numel() / n;
  const auto* in = read<float>(x);
  auto* to = write<float>(out);
  parallel(rows, 1, x.numel() * bytes_of_exp, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) table.softmax_row(in + i * n, log, to + i * n, n);
  });
}

void Kernels::cross_entropy(const CrossEntropy& options, const Tensor& logits, const Tensor& labels, Tensor& losses,
                            Tensor& norms) {
  const std::int64_t rows = logits.size(0), n = logits.size(1);
  const auto* in = read<float>(logits);
  const auto* label = read<std::int64_t>(labels);
  auto *loss = write<float>(losses), *norm = write<float>(norms);
  const auto share = static_cast<float>(options.smoothing), sure = static_cast<float>(1.0 - options.smoothing);
  parallel(rows, 16, logits.numel() * bytes_of_exp, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      float* const two = norm + 2 * i;
      if (label[i] == options.ignore) {
        loss[i] = two[0] = two[1] = 0.0F;
        continue;
      }
      table.log_sum_exp(in + i * n, n, two);
      float score = in[i * n + label[i]] - two[0];
      if (options.smoothing != 0.0)  // else the mean of all scores would make NaN of a -inf
        score = sure * score + share * (table.sum_shifted(in + i * n, two[0], n) / static_cast<float>(n));
      loss[i] = two[1] - score;
    }
  });
}

void Kernels::cross_entropy_backward(const CrossEntropy& options, const Tensor& grad, const Tensor& logits,
                                     const Tensor& labels, const Tensor& norms, Tensor& out) {
  const std::int64_t rows = logits.size(0), n = logits.size(1);
  const auto *upstream = read<float>(grad), *in = read<float>(logits), *norm = read<float>(norms);
  const auto* label = read<std::int64_t>(labels);
  auto* to = write<float>(out);
  const auto each = static_cast<float>(options.smoothing / static_cast<double>(n)),
             sure = static_cast<float>(1.0 - options.smoothing);
  parallel(rows, 1, logits.numel() * bytes_of_exp, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      float* row = to + i * n;
      if (label[i] == options.ignore) {
        for (std::int64_t j = 0; j < n; ++j) row[j] = 0.0F;
        continue;
      }
      table.softmax_grad_row(in + i * n, norm + 2 * i, each, upstream[i], row, n);
      row[label[i]] -= sure * upstream[i];
    }
  });
}

}  // namespace wengert::xsimd_backend
