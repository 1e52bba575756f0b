#include "wengert/gradcheck.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "wengert/gradient.hpp"
#include "wengert/ops.hpp"
#include "wengert/random.hpp"
#include "wengert/tape.hpp"

namespace wengert {

namespace {

// Puts `value` into one element, wherever the tensor lives.
void set_element(Tensor& tensor, std::vector<double>& values, std::size_t element, double value) {
  values[element] = value;
  const NoGrad pause;
  tensor.copy_(wengert::tensor(values, tensor.shape(), tensor.backend()));
}

double weighted(const Tensor& out, const Tensor& upstream) {
  const std::vector<double> a = out.to_vector<double>(), b = upstream.to_vector<double>();
  double total = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) total += a[i] * b[i];
  return total;
}

// Leaves the values and gradients of the inputs as they were, whatever happens.
class KeepInputs {
 public:
  explicit KeepInputs(std::vector<Tensor>& inputs) : inputs_(inputs) {
    for (const Tensor& input : inputs) {
      kept_.push_back(input.gradient());
      values_.push_back(input.detach().clone());
    }
    for (Tensor& input : inputs) input.zero_grad();
  }
  KeepInputs(const KeepInputs&) = delete;
  KeepInputs& operator=(const KeepInputs&) = delete;
  ~KeepInputs() {
    const NoGrad pause;
    for (std::size_t i = kept_.size(); i-- > 0;) {
      inputs_[i].copy_(values_[i]);
      inputs_[i].zero_grad();
      if (kept_[i].defined()) inputs_[i].set_gradient(std::move(kept_[i]));
    }
  }

 private:
  std::vector<Tensor>& inputs_;
  std::vector<Gradient> kept_;
  std::vector<Tensor> values_;
};

}  // namespace

GradcheckResult gradcheck(const std::function<Tensor(const std::vector<Tensor>&)>& f, std::vector<Tensor> inputs,
                          const GradcheckOptions& options) {
  for (const Tensor& input : inputs)
    if (input.requires_grad() && input.dtype() != DType::float64)
      throw DTypeError(
          fmt::format("gradcheck: an input is {}; finite differences need float64", name_of(input.dtype())));
  if (std::none_of(inputs.begin(), inputs.end(), [](const Tensor& input) { return input.requires_grad(); }))
    throw TapeError("gradcheck: no input requires grad; there is nothing to check");
  const KeepInputs keep(inputs);

  Generator generator(options.seed);
  Tensor upstream;
  std::vector<std::vector<double>> analytic;
  {
    const EnableGrad resume;
    Tape tape;
    const Tensor out = f(inputs);
    upstream = randn(out.shape(), DType::float64, generator).to(out.backend());
    tape.backward(out, {.seed = upstream});
    for (const Tensor& input : inputs) {
      const Tensor grad = input.grad();
      analytic.push_back(grad.defined() ? grad.to_vector<double>()
                                        : std::vector<double>(static_cast<std::size_t>(input.numel())));
    }
  }

  GradcheckResult result;
  const NoGrad pause;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Tensor& input = inputs[i];
    if (!input.requires_grad()) continue;
    std::vector<double> values = input.to_vector<double>();
    for (std::size_t e = 0; e < values.size(); ++e) {
      if (options.skip && options.skip(i, static_cast<std::int64_t>(e))) continue;
      const double value = values[e];
      set_element(input, values, e, value + options.step);
      const double above = weighted(f(inputs), upstream);
      set_element(input, values, e, value - options.step);
      const double below = weighted(f(inputs), upstream);
      set_element(input, values, e, value);
      const double numeric = (above - below) / (2.0 * options.step), gap = std::abs(analytic[i][e] - numeric);
      result.worst = std::isnan(gap) ? gap : std::max(result.worst, gap);
      if (gap <= options.absolute + options.relative * std::abs(numeric)) continue;  // false for NaN
      if (result.ok)
        result.message =
            fmt::format("gradcheck: input {} of shape {}, element {}: the tape says {}, finite differences {}", i,
                        input.shape().str(), e, analytic[i][e], numeric);
      result.ok = false;
    }
  }
  return result;
}

}  // namespace wengert
