#include "wengert/layers/module.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "wengert/tape.hpp"

namespace wengert::layers {

// --- Registration ---

void Module::check_name(std::string_view name) const {
  const auto taken = [name](const auto& entry) { return entry.name == name; };
  if (name.empty() || name.find('.') != std::string_view::npos)
    throw Error(fmt::format("Module: \"{}\" is no name for a member; it must not be empty or have a dot", name));
  if (std::any_of(members_.begin(), members_.end(), taken) || std::any_of(children_.begin(), children_.end(), taken))
    throw Error(fmt::format("Module: two members are named {}", name));
}

void Module::register_parameter(std::string_view name, Tensor& member, bool requires_grad) {
  check_name(name);
  members_.push_back({std::string(name), &member, Role::parameter});
  if (member.defined()) member.set_requires_grad(requires_grad);
  give_names();
}

void Module::register_buffer(std::string_view name, Tensor& member, bool persistent) {
  check_name(name);
  members_.push_back({std::string(name), &member, persistent ? Role::persistent_buffer : Role::buffer});
  give_names();
}

void Module::register_module(std::string_view name, Module& child) {
  check_name(name);
  children_.push_back({std::string(name), &child});
  give_names();
}

// Modules are built from the inside out, so the last to give names is the outermost.
void Module::give_names() {
  std::vector<Tensor> seen;
  for (const Member& member : members()) {
    const auto same = [&](const Tensor& tensor) { return tensor.is(*member.tensor); };
    if (std::any_of(seen.begin(), seen.end(), same)) continue;
    member.tensor->set_name(member.name);
    seen.push_back(*member.tensor);
  }
}

// --- Walking ---

void Module::collect(const std::string& prefix, std::vector<Member>& out) const {
  for (const bool parameters : {true, false})
    for (const Member& member : members_)
      if ((member.role == Role::parameter) == parameters && member.tensor->defined())
        out.push_back({prefix + member.name, member.tensor, member.role});
  for (const Child& child : children_) child.module->collect(prefix + child.name + ".", out);
}

std::vector<Module::Member> Module::members(std::string_view prefix) const {
  std::vector<Member> out;
  collect(prefix.empty() ? std::string() : fmt::format("{}.", prefix), out);
  return out;
}

NamedTensors Module::once(std::string_view prefix, bool parameters) const {
  NamedTensors out;
  for (const Member& member : members(prefix)) {
    if ((member.role == Role::parameter) != parameters) continue;
    const auto same = [&](const NamedTensor& entry) { return entry.tensor.is(*member.tensor); };
    if (std::any_of(out.begin(), out.end(), same)) continue;
    // A tensor that was assigned to the member after its registration.
    if (member.tensor->name().empty()) member.tensor->set_name(member.name);
    out.push_back({member.name, *member.tensor});
  }
  return out;
}

NamedTensors Module::named_parameters(std::string_view prefix) const { return once(prefix, true); }
NamedTensors Module::named_buffers(std::string_view prefix) const { return once(prefix, false); }

std::vector<Tensor> Module::parameters() const {
  std::vector<Tensor> out;
  for (const NamedTensor& entry : named_parameters()) out.push_back(entry.tensor);
  return out;
}

std::int64_t Module::num_parameters() const {
  std::int64_t count = 0;
  for (const Tensor& parameter : parameters()) count += parameter.numel();
  return count;
}

void Module::train(bool training) {
  training_ = training;
  for (const Child& child : children_) child.module->train(training);
}

void Module::to(Backend& backend) {
  const std::vector<Member> all = members();
  for (const Member& member : all) backend.kernels(member.tensor->dtype());  // throws if it has none for this type
  for (const Member& member : all) member.tensor->move_to_(backend);
}

void Module::zero_grad() {
  for (const Member& member : members())
    if (member.role == Role::parameter) member.tensor->zero_grad();
}

// --- State ---

NamedTensors Module::state_dict() const {
  NamedTensors out;
  for (const Member& member : members())
    if (member.role != Role::buffer) out.push_back({member.name, member.tensor->detach()});
  return out;
}

namespace {

std::string described(const Tensor& tensor) {
  return fmt::format("{} {}", name_of(tensor.dtype()), tensor.shape().str());
}

std::string listed(const char* what, const std::vector<std::string>& names) {
  return names.empty() ? std::string() : fmt::format("; {}: {}", what, fmt::join(names, ", "));
}

bool same_values(const Tensor& a, const Tensor& b) {
  if (&a.storage() == &b.storage()) return true;
  if (!is_floating(a.dtype())) return a.to_vector<std::int64_t>() == b.to_vector<std::int64_t>();
  const auto x = a.to_vector<double>(), y = b.to_vector<double>();
  return std::equal(x.begin(), x.end(), y.begin(), y.end(),
                    [](double u, double v) { return u == v || (std::isnan(u) && std::isnan(v)); });
}

}  // namespace

LoadResult Module::load_state_dict(const NamedTensors& state, const LoadOptions& options) {
  struct Copy {
    const Member* to;
    Tensor from;
  };
  std::vector<Member> own = members();
  std::erase_if(own, [](const Member& member) { return member.role == Role::buffer; });

  LoadResult result;
  std::vector<std::string> wrong;
  std::vector<Copy> copies;
  std::size_t matched = 0;
  for (const Member& member : own) {
    const auto named = [&](const NamedTensor& entry) { return entry.name == member.name; };
    const auto found = std::find_if(state.begin(), state.end(), named);
    if (found == state.end()) {
      result.missing.push_back(member.name);
      continue;
    }
    ++matched;
    const Tensor& from = found->tensor;
    if (std::any_of(found + 1, state.end(), named)) {
      wrong.push_back(fmt::format("{} comes twice", member.name));
    } else if (!from.defined()) {
      wrong.push_back(fmt::format("{} is undefined", member.name));
    } else if (!(from.shape() == member.tensor->shape()) || from.dtype() != member.tensor->dtype()) {
      wrong.push_back(fmt::format("{} is {}, not {}", member.name, described(from), described(*member.tensor)));
    } else {
      const auto tied = [&](const Copy& copy) { return copy.to->tensor->is(*member.tensor); };
      const auto first = std::find_if(copies.begin(), copies.end(), tied);
      if (first == copies.end()) {
        copies.push_back({&member, from});
      } else if (!same_values(first->from, from)) {
        wrong.push_back(fmt::format("{} and {} are one tensor here but differ", first->to->name, member.name));
      }
    }
  }
  for (const NamedTensor& entry : state) {
    const auto named = [&](const Member& member) { return member.name == entry.name; };
    if (std::none_of(own.begin(), own.end(), named)) result.unexpected.push_back(entry.name);
  }

  const bool differs = !result.missing.empty() || !result.unexpected.empty();
  const bool nothing = matched == 0 && !own.empty();
  if (!wrong.empty() || nothing || (options.strict && differs))
    throw Error(fmt::format("load_state_dict: {} of {} keys matched{}{}{}", matched, own.size(),
                            listed("missing", result.missing), listed("unexpected", result.unexpected),
                            listed("wrong", wrong)));

  const NoGrad pause;
  // A dict may hold this module's own tensors under other names: their values are taken before the first is
  // overwritten.
  for (Copy& copy : copies)
    if (std::any_of(copies.begin(), copies.end(), [&](const Copy& other) {
          return other.to != copy.to && &other.to->tensor->storage() == &copy.from.storage();
        }))
      copy.from = copy.from.clone();
  for (const Copy& copy : copies)
    if (&copy.from.storage() != &copy.to->tensor->storage()) copy.to->tensor->copy_(copy.from);
  return result;
}

}  // namespace wengert::layers
