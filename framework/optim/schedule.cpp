#include <cmath>

#include "wengert/optim.hpp"

namespace wengert::optim {

double linear_warmup(std::int64_t step, std::int64_t warmup) {
  return step >= warmup ? 1.0 : static_cast<double>(step) / static_cast<double>(warmup);
}

double step_decay(std::int64_t step, std::int64_t every, double factor) {
  if (every <= 0 || step < 1) return 1.0;
  const std::int64_t decays = (step - 1) / every;
  return std::pow(factor, static_cast<double>(decays));
}

}  // namespace wengert::optim
