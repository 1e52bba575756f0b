#include <cmath>

#include "wengert/kernels.hpp"
#include "wengert/optim.hpp"

namespace wengert::optim {

Adam::Adam(const char* kind, bool decoupled, const AdamOptions& options)
    : Optimizer(kind, {"exp_avg", "exp_avg_sq"}, {options.lr, options.weight_decay, options.rows}),
      beta1_(options.beta1),
      beta2_(options.beta2),
      eps_(options.eps),
      decoupled_(decoupled) {
  require("beta1", beta1_, 0.0, 1.0);
  require("beta2", beta2_, 0.0, 1.0);
  require("eps", eps_, 0.0, HUGE_VAL);
}

Adam::Adam(NamedTensors parameters, const AdamOptions& options) : Adam("Adam", false, options) {
  add_group({.parameters = std::move(parameters)});
}

Adam::Adam(std::vector<ParameterGroup> groups, const AdamOptions& options) : Adam("Adam", false, options) {
  for (ParameterGroup& group : groups) add_group(std::move(group));
}

void Adam::update(Parameter& parameter, const Group& group, double lr) {
  AdamStep step;
  step.lr = lr;
  step.beta1 = beta1_;
  step.beta2 = beta2_;
  step.eps = eps_;
  step.weight_decay = group.weight_decay;
  step.decoupled = decoupled_;
  step.step = parameter.steps;
  step.lazy_rows = group.rows == RowUpdate::lazy;
  parameter.tensor.kernels().adam_step(step, parameter.tensor.gradient(), parameter.tensor, parameter.state[0],
                                       parameter.state[1]);
}

namespace {

AdamOptions as_adam(const AdamWOptions& options) {
  return {.lr = options.lr,
          .beta1 = options.beta1,
          .beta2 = options.beta2,
          .eps = options.eps,
          .weight_decay = options.weight_decay,
          .rows = options.rows};
}

}  // namespace

AdamW::AdamW(NamedTensors parameters, const AdamWOptions& options) : Adam("AdamW", true, as_adam(options)) {
  add_group({.parameters = std::move(parameters)});
}

AdamW::AdamW(std::vector<ParameterGroup> groups, const AdamWOptions& options) : Adam("AdamW", true, as_adam(options)) {
  for (ParameterGroup& group : groups) add_group(std::move(group));
}

}  // namespace wengert::optim
