#include <fmt/format.h>

#include <cmath>

#include "../core/tensor_impl.hpp"
#include "wengert/optim.hpp"
#include "wengert/tape.hpp"

namespace wengert::optim {

namespace {

// True when this handle is the only one: nobody can compute with the tensor any more.
bool abandoned(const Tensor& tensor) {
  return wengert::detail::TensorAccess::impl(tensor).references.load(std::memory_order_acquire) == 1;
}

}  // namespace

Optimizer::Optimizer(const char* kind, std::vector<const char*> state_names, const Group& defaults)
    : kind_(kind), state_names_(std::move(state_names)), defaults_(defaults) {
  require("lr", defaults.lr, 0.0, HUGE_VAL);
  require("weight_decay", defaults.weight_decay, 0.0, HUGE_VAL);
}

void Optimizer::require(const char* setting, double value, double low, double high) const {
  if (!(value >= low && value < high))
    throw ValueError(fmt::format("{}: {} is {}; allowed is [{}, {})", kind_, setting, value, low, high));
}

void Optimizer::add_group(ParameterGroup group) {
  Group settings = defaults_;
  settings.lr = group.lr.value_or(defaults_.lr);
  settings.weight_decay = group.weight_decay.value_or(defaults_.weight_decay);
  settings.rows = group.rows.value_or(defaults_.rows);
  require("lr", settings.lr, 0.0, HUGE_VAL);
  require("weight_decay", settings.weight_decay, 0.0, HUGE_VAL);
  if (group.parameters.empty()) throw ValueError(fmt::format("{}: a group without parameters", kind_));

  std::vector<Parameter> all = parameters_;
  for (NamedTensor& entry : group.parameters) {
    if (!entry.tensor.defined()) throw ValueError(fmt::format("{}: parameter {} is undefined", kind_, entry.name));
    if (!is_floating(entry.tensor.dtype()))
      throw DTypeError(fmt::format("{}: parameter {} is {}; only float32 and float64 can be trained", kind_, entry.name,
                                   name_of(entry.tensor.dtype())));
    for (const Parameter& other : all) {
      if (other.tensor.is(entry.tensor))
        throw ValueError(fmt::format("{}: parameter {} is the same tensor as {}; list tied weights once", kind_,
                                     entry.name, other.name));
      if (other.name == entry.name)
        throw ValueError(fmt::format("{}: two parameters are named {}; state is kept by name", kind_, entry.name));
    }
    const Shape shape = entry.tensor.shape();
    all.push_back({std::move(entry.name), std::move(entry.tensor), shape, groups_.size()});
  }
  groups_.push_back(settings);
  parameters_ = std::move(all);
}

void Optimizer::zero_grad() {
  for (Parameter& parameter : parameters_) parameter.tensor.zero_grad();
}

void Optimizer::step() {
  const double factor = schedule_ ? schedule_(step_count_ + 1) : 1.0;
  if (!(factor >= 0.0 && factor < HUGE_VAL))
    throw ValueError(fmt::format("{}: the schedule gave the factor {} for step {}; it must be finite and not negative",
                                 kind_, factor, step_count_ + 1));
  for (const Parameter& parameter : parameters_) {
    if (abandoned(parameter.tensor))
      throw Error(
          fmt::format("{}: parameter {} is no longer in the model: another tensor took its place after the optimiser "
                      "was made; make the optimiser anew",
                      kind_, parameter.name));
    if (!(parameter.tensor.shape() == parameter.shape))
      throw ShapeError(fmt::format("{}: parameter {} had shape {} when the optimiser was made and has {} now", kind_,
                                   parameter.name, parameter.shape.str(), parameter.tensor.shape().str()));
  }

  const NoGrad pause;
  for (Parameter& parameter : parameters_) {
    if (!parameter.tensor.requires_grad() || !parameter.tensor.gradient().defined()) continue;
    for (std::size_t i = 0; i < state_names_.size(); ++i) {
      if (parameter.state[i].defined()) {
        parameter.state[i].move_to_(parameter.tensor.backend());
      } else {
        parameter.state[i] = zeros(parameter.shape, parameter.tensor);
      }
    }
    ++parameter.steps;
    const Group& group = groups_[parameter.group];
    update(parameter, group, group.lr * factor);
  }
  for (Group& group : groups_) group.last_lr = group.lr * factor;
  ++step_count_;
}

void Optimizer::set_lr(double lr, std::size_t group) {
  require("lr", lr, 0.0, HUGE_VAL);
  group_at(group);
  groups_[group].lr = lr;
}

const Optimizer::Group& Optimizer::group_at(std::size_t group) const {
  if (group >= groups_.size())
    throw IndexError(fmt::format("{}: there is no group {}, only {}", kind_, group, groups_.size()));
  return groups_[group];
}

NamedTensors Optimizer::named_parameters() const {
  NamedTensors out;
  for (const Parameter& parameter : parameters_) out.push_back({parameter.name, parameter.tensor});
  return out;
}

}  // namespace wengert::optim
