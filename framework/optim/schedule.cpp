#include <algorithm>
#include <cmath>
#include <numbers>

#include "wengert/optim.hpp"

namespace wengert::optim {

namespace {

// How much of `total` steps is done, in [0, 1].
double done(std::int64_t step, std::int64_t total) {
  if (total <= 0) return 0.0;
  return static_cast<double>(std::clamp<std::int64_t>(step, 0, total)) / static_cast<double>(total);
}

}  // namespace

double linear_warmup(std::int64_t step, std::int64_t warmup) {
  return step >= warmup ? 1.0 : static_cast<double>(step) / static_cast<double>(warmup);
}

double step_decay(std::int64_t step, std::int64_t every, double factor) {
  if (every <= 0 || step < 1) return 1.0;
  const std::int64_t decays = (step - 1) / every;
  return std::pow(factor, static_cast<double>(decays));
}

double linear_decay(std::int64_t step, std::int64_t total, double last) {
  return 1.0 - (1.0 - last) * done(step, total);
}

double cosine_decay(std::int64_t step, std::int64_t total, double last) {
  return last + (1.0 - last) * (0.5 + 0.5 * std::cos(std::numbers::pi * done(step, total)));
}

}  // namespace wengert::optim
