#include <fmt/format.h>

#include <cmath>

#include "wengert/gradient.hpp"
#include "wengert/kernels.hpp"
#include "wengert/optim.hpp"
#include "wengert/tape.hpp"

namespace wengert::optim {

namespace {

// `get(i)` is the i-th of `count` tensors; `f` sees the stored values of each gradient once.
template <class Get, class F>
void for_each_gradient(std::size_t count, Get get, F f) {
  for (std::size_t i = 0; i < count; ++i) {
    const Tensor& parameter = get(i);
    if (!parameter.defined() || !parameter.gradient().defined()) continue;
    bool seen = false;
    for (std::size_t j = 0; j < i && !seen; ++j) seen = get(j).is(parameter);
    Tensor values = parameter.gradient().values();
    if (!seen && values.numel() > 0) f(values);
  }
}

template <class Get>
double clip_norm(std::size_t count, Get get, double max_norm, bool error_if_nonfinite) {
  if (!(max_norm >= 0.0))
    throw ValueError(fmt::format("clip_grad_norm: max_norm is {}; it must not be negative", max_norm));
  const NoGrad pause;
  double total = 0.0;
  for_each_gradient(count, get, [&](Tensor& values) {
    Tensor squares = empty({}, DType::float64, values.backend());
    values.kernels().sum_squares(values, squares);
    total += squares.item<double>();
  });
  const double norm = std::sqrt(total);
  if (error_if_nonfinite && !std::isfinite(norm))
    throw Error(fmt::format("clip_grad_norm: the norm of the gradients is {}; it must be finite", norm));
  const double factor = max_norm / (norm + 1e-6);
  if (!(factor >= 1.0)) for_each_gradient(count, get, [&](Tensor& values) { values.mul_(factor); });
  return norm;
}

template <class Get>
void clip_value_of(std::size_t count, Get get, double clip_value) {
  if (!(clip_value > 0.0))
    throw ValueError(fmt::format("clip_grad_value: clip_value is {}; it must be above 0", clip_value));
  const NoGrad pause;
  for_each_gradient(count, get,
                    [&](Tensor& values) { values.kernels().unary(Unary::clamp, values, clip_value, values); });
}

}  // namespace

double clip_grad_norm(const Optimizer& optimizer, double max_norm, bool error_if_nonfinite) {
  const auto& all = optimizer.parameters_;
  return clip_norm(
      all.size(), [&](std::size_t i) -> const Tensor& { return all[i].tensor; }, max_norm, error_if_nonfinite);
}

double clip_grad_norm(std::span<const Tensor> parameters, double max_norm, bool error_if_nonfinite) {
  return clip_norm(
      parameters.size(), [&](std::size_t i) -> const Tensor& { return parameters[i]; }, max_norm, error_if_nonfinite);
}

void clip_grad_value(const Optimizer& optimizer, double clip_value) {
  const auto& all = optimizer.parameters_;
  clip_value_of(
      all.size(), [&](std::size_t i) -> const Tensor& { return all[i].tensor; }, clip_value);
}

void clip_grad_value(std::span<const Tensor> parameters, double clip_value) {
  clip_value_of(
      parameters.size(), [&](std::size_t i) -> const Tensor& { return parameters[i]; }, clip_value);
}

}  // namespace wengert::optim
