#include <cmath>

#include "wengert/kernels.hpp"
#include "wengert/optim.hpp"

namespace wengert::optim {

SGD::SGD(const SGDOptions& options)
    : Optimizer("SGD",
                options.momentum != 0.0 ? std::vector<const char*>{"momentum_buffer"} : std::vector<const char*>{},
                {options.lr, options.weight_decay, options.rows}),
      momentum_(options.momentum),
      dampening_(options.dampening),
      nesterov_(options.nesterov) {
  require("momentum", momentum_, 0.0, HUGE_VAL);
  if (!std::isfinite(dampening_)) throw ValueError("SGD: dampening is not finite");
  if (nesterov_ && (momentum_ == 0.0 || dampening_ != 0.0))
    throw ValueError("SGD: nesterov needs momentum above 0 and dampening 0");
}

SGD::SGD(NamedTensors parameters, const SGDOptions& options) : SGD(options) {
  add_group({.parameters = std::move(parameters)});
}

SGD::SGD(std::vector<ParameterGroup> groups, const SGDOptions& options) : SGD(options) {
  for (ParameterGroup& group : groups) add_group(std::move(group));
}

void SGD::update(Parameter& parameter, const Group& group, double lr) {
  SgdStep step;
  step.lr = lr;
  step.momentum = momentum_;
  step.dampening = dampening_;
  step.weight_decay = group.weight_decay;
  step.nesterov = nesterov_;
  step.first = parameter.steps == 1;
  step.lazy_rows = group.rows == RowUpdate::lazy;
  parameter.tensor.kernels().sgd_step(step, parameter.tensor.gradient(), parameter.tensor, parameter.state[0]);
}

}  // namespace wengert::optim
