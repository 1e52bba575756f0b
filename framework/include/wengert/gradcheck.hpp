#pragma once
/// Compares the derivatives that the tape computes with finite differences.

#include <functional>
#include <string>
#include <vector>

#include "wengert/tensor.hpp"

namespace wengert {

struct GradcheckOptions {
  double step = 1e-6;      ///< half the distance of the two evaluations
  double absolute = 1e-7;  ///< |analytic - numeric| <= absolute + relative * |numeric|
  double relative = 1e-5;
  std::uint64_t seed = 0;  ///< of the random upstream gradient
  /// Elements to skip: skip(input, flat element). For rows whose gradient is defined to be zero (padding).
  std::function<bool(std::size_t, std::int64_t)> skip{};
};

struct GradcheckResult {
  bool ok = true;
  double worst = 0.0;   ///< largest |analytic - numeric|
  std::string message;  ///< the first failure: input, element, both values
  explicit operator bool() const { return ok; }
};

/// Central differences of sum(upstream * f(inputs)) with respect to every element of every input that requires grad,
/// against one backward pass. The inputs must be float64 leaves (DTypeError otherwise); f must be deterministic
/// (restart the generator inside it). Gradients of the inputs are left as they were found.
GradcheckResult gradcheck(const std::function<Tensor(const std::vector<Tensor>&)>& f, std::vector<Tensor> inputs,
                          const GradcheckOptions& options = {});

}  // namespace wengert
