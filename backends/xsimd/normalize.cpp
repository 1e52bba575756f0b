// Layer norm, the gradient of softmax, and selection.

#include "parallel.hpp"
#include "table.hpp"
#include "wengert/backends/xsimd.hpp"

namespace wengert::xsimd_backend {

namespace {

// Rows whose shares of the gradients of weight and bias are added up one after the other; the sums of such blocks go
// through the fixed tree. The same for any number of threads.
constexpr std::int64_t block = 64;

}  // namespace

void Kernels::normalize_rows(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps, Tensor& out,
                             Tensor& stats) {
  const std::int64_t rows = x.size(0), n = x.size(1);
  if (n == 0) return fill(stats, 0.0);
  Normalize args{};
  args.x = read<float>(x);
  args.weight = weight.defined() ? read<float>(weight) : nullptr;
  args.bias = bias.defined() ? read<float>(bias) : nullptr;
  args.eps = static_cast<float>(eps), args.n = n;
  args.out = write<float>(out), args.stats = write<float>(stats);
  parallel(rows, 8, 12 * x.numel(),
           [&](std::int64_t begin, std::int64_t end) { table.normalize_rows(args, begin, end); });
}

void Kernels::normalize_rows_backward(const Tensor& grad, const Tensor& x, const Tensor& weight, const Tensor& stats,
                                      Tensor* grad_x, Tensor* grad_weight, Tensor* grad_bias) {
  const std::int64_t rows = x.size(0), n = x.size(1), blocks = (rows + block - 1) / block;
  for (Tensor* sum : {grad_weight, grad_bias})
    if (sum && rows * n == 0) fill(*sum, 0.0);
  if (rows * n == 0) return;
  NormalizeBackward args{};
  args.grad = read<float>(grad), args.x = read<float>(x), args.stats = read<float>(stats);
  args.weight = weight.defined() ? read<float>(weight) : nullptr;
  args.n = n;
  args.out = grad_x ? write<float>(*grad_x) : nullptr;
  // What each block adds to the two gradients.
  Tensor of_weight = grad_weight ? empty({blocks, n}, x) : Tensor(),
         of_bias = grad_bias ? empty({blocks, n}, x) : Tensor();
  float* const to_weight = grad_weight ? write<float>(of_weight) : nullptr;
  float* const to_bias = grad_bias ? write<float>(of_bias) : nullptr;
  parallel(blocks, 1, 20 * x.numel(), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      table.normalize_rows_backward(args, i * block, i + 1 < blocks ? (i + 1) * block : rows,
                                    to_weight ? to_weight + i * n : nullptr, to_bias ? to_bias + i * n : nullptr);
  });
  if (grad_weight) reduce(Reduce::sum, {1, blocks, n}, of_weight, *grad_weight);
  if (grad_bias) reduce(Reduce::sum, {1, blocks, n}, of_bias, *grad_bias);
}

void Kernels::softmax_backward(const Tensor& grad, const Tensor& y, bool log, Tensor& out) {
  const std::int64_t n = y.size(-1), rows = n == 0 ? 0 : y.numel() / n;
  const auto *upstream = read<float>(grad), *from = read<float>(y);
  auto* to = write<float>(out);
  parallel(rows, 8, y.numel() * (log ? 32 : 12), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      table.softmax_backward_row(upstream + i * n, from + i * n, log, to + i * n, n);
  });
}

void Kernels::where(const Tensor& condition, const Tensor& a, const Tensor& b, Tensor& out) {
  const auto *chosen = read<float>(condition), *yes = read<float>(a), *no = read<float>(b);
  auto* to = write<float>(out);
  parallel(out.numel(), 16, 16 * out.numel(), [&](std::int64_t begin, std::int64_t end) {
    table.where(chosen + begin, yes + begin, no + begin, to + begin, end - begin);
  });
}

}  // namespace wengert::xsimd_backend
