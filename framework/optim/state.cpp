#include <algorithm>

#include "text.hpp"
#include "wengert/optim.hpp"
#include "wengert/tape.hpp"

namespace wengert::optim {

namespace {

std::string key(const std::string& parameter, const char* state) { return fmt::format("{}.{}", parameter, state); }

}  // namespace

OptimizerState Optimizer::state_dict() const {
  OptimizerState out;
  out.step_count = step_count_;
  for (const Parameter& parameter : parameters_) {
    out.steps.push_back({parameter.name, parameter.steps});
    for (std::size_t i = 0; i < state_names_.size(); ++i)
      if (parameter.state[i].defined())
        out.tensors.push_back({key(parameter.name, state_names_[i]), parameter.state[i].detach()});
  }
  return out;
}

void Optimizer::load_state_dict(const OptimizerState& state) {
  std::vector<std::string> missing, unexpected, wrong;
  std::vector<std::string> known_counters, known_tensors;
  if (state.step_count < 0) wrong.push_back(fmt::format("step_count {}", state.step_count));

  // What this optimiser will have, in the order of its parameters.
  struct Loaded {
    std::int64_t steps = 0;
    Tensor state[max_state];
  };
  std::vector<Loaded> loaded(parameters_.size());
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    const Parameter& parameter = parameters_[p];
    const auto counter = std::find_if(state.steps.begin(), state.steps.end(),
                                      [&](const OptimizerState::Counter& c) { return c.name == parameter.name; });
    if (counter == state.steps.end()) {
      missing.push_back(parameter.name);
      continue;
    }
    known_counters.push_back(parameter.name);
    if (counter->value < 0 || counter->value > state.step_count)
      wrong.push_back(fmt::format("{} has {} steps of {}", parameter.name, counter->value, state.step_count));
    loaded[p].steps = counter->value;
    if (counter->value == 0) continue;
    for (std::size_t i = 0; i < state_names_.size(); ++i) {
      const std::string name = key(parameter.name, state_names_[i]);
      const Tensor tensor = find(state.tensors, name);
      if (!tensor.defined()) {
        missing.push_back(name);
        continue;
      }
      known_tensors.push_back(name);
      if (!(tensor.shape() == parameter.shape) || tensor.dtype() != parameter.tensor.dtype())
        wrong.push_back(fmt::format("{} is {} {}, not {} {}", name, name_of(tensor.dtype()), tensor.shape().str(),
                                    name_of(parameter.tensor.dtype()), parameter.shape.str()));
      loaded[p].state[i] = tensor;
    }
  }
  // Each known name accounts for one entry; a name that comes twice is as unexpected as one that nobody knows.
  const auto account = [&](std::vector<std::string>& known, const std::string& name) {
    const auto it = std::find(known.begin(), known.end(), name);
    if (it == known.end()) {
      unexpected.push_back(name);
    } else {
      known.erase(it);
    }
  };
  for (const OptimizerState::Counter& counter : state.steps) account(known_counters, counter.name);
  for (const NamedTensor& entry : state.tensors) account(known_tensors, entry.name);
  if (!missing.empty() || !unexpected.empty() || !wrong.empty())
    throw Error(fmt::format("{}: the state does not fit this optimiser{}{}{}", kind_,
                            detail::listed("missing", missing), detail::listed("unexpected", unexpected),
                            detail::listed("wrong", wrong)));

  const NoGrad pause;
  for (std::size_t p = 0; p < parameters_.size(); ++p)
    for (Tensor& tensor : loaded[p].state)
      if (tensor.defined()) {
        Tensor copy = empty(tensor.shape(), parameters_[p].tensor);
        copy.copy_(tensor);
        tensor = std::move(copy);
      }
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    parameters_[p].steps = loaded[p].steps;
    std::swap(parameters_[p].state, loaded[p].state);
  }
  step_count_ = state.step_count;
}

}  // namespace wengert::optim
