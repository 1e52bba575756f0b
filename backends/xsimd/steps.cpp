// Optimiser steps.

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "parallel.hpp"
#include "table.hpp"
#include "wengert/backends/xsimd.hpp"

namespace wengert::xsimd_backend {

namespace {

constexpr std::int64_t rows_ahead = 4;

// Calls range(gradient, first, count) for the elements that a step touches; a null gradient stands for zeros. `touched`
// are the tensors, like the parameter, that it works on.
template <class Range>
void for_each_range(const Table& table, const Gradient& grad, const Shape& shape, bool lazy,
                    std::initializer_list<const float*> touched, Range range) {
  // Each is read and written; so much for the gradient.
  const std::int64_t bytes_per_element = 8 * static_cast<std::int64_t>(touched.size()) + 4;
  const auto* values = read<float>(grad.values());
  if (grad.is_dense()) {
    return parallel(shape.numel(), 16, shape.numel() * bytes_per_element,
                    [&](std::int64_t begin, std::int64_t end) { range(values + begin, begin, end - begin); });
  }
  const RowGrad& rows = grad.rows();
  const auto* ids = read<std::int64_t>(rows.ids);
  const std::int64_t d = rows.rows.size(1);
  if (lazy) {
    return parallel(rows.count(), 1, rows.count() * d * bytes_per_element, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t k = begin; k < end; ++k) {
        if (k + rows_ahead < end)
          for (const float* tensor : touched)
            if (tensor) table.prefetch(tensor + ids[k + rows_ahead] * d, d);
        range(values + k * d, ids[k] * d, d);
      }
    });
  }
  parallel(rows.num_rows, 1, shape.numel() * bytes_per_element, [&](std::int64_t begin, std::int64_t end) {
    std::int64_t k = std::lower_bound(ids, ids + rows.count(), begin) - ids;
    for (std::int64_t row = begin; row < end;) {
      const std::int64_t present = k < rows.count() ? std::min(ids[k], end) : end;
      if (row < present) range(static_cast<const float*>(nullptr), row * d, (present - row) * d);
      if (present < end) range(values + k * d, present * d, d), ++k;
      row = present + 1;
    }
  });
}

}  // namespace

void Kernels::sgd_step(const SgdStep& step, const Gradient& grad, Tensor& param, Tensor& momentum) {
  const bits::SgdScalars<float> scalars(step);
  auto* p = write<float>(param);
  auto* m = momentum.defined() ? write<float>(momentum) : nullptr;
  // Where nothing but the gradient moves a row, p - lr * 0 leaves it as it is (not so for an infinite or negative lr).
  const bool stays =
      !scalars.has_momentum && !scalars.has_decay && std::isfinite(scalars.lr) && !std::signbit(scalars.lr);
  const bool lazy = step.lazy_rows || stays;
  for_each_range(table, grad, param.shape(), lazy, {p, m}, [&](const float* g, std::int64_t first, std::int64_t count) {
    table.sgd(scalars, g, p + first, m ? m + first : nullptr, count);
  });
}

void Kernels::adam_step(const AdamStep& step, const Gradient& grad, Tensor& param, Tensor& m, Tensor& v) {
  const bits::AdamScalars<float> scalars(step);
  auto *p = write<float>(param), *first = write<float>(m), *second = write<float>(v);
  for_each_range(table, grad, param.shape(), step.lazy_rows, {p, first, second},
                 [&](const float* g, std::int64_t begin, std::int64_t count) {
                   table.adam(scalars, g, p + begin, first + begin, second + begin, count);
                 });
}

}  // namespace wengert::xsimd_backend
