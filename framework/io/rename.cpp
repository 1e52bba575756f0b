#include "wengert/rename.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "wengert/error.hpp"
#include "wengert/ops.hpp"
#include "wengert/tape.hpp"

namespace wengert::io {

namespace {

// What the '*' of `pattern` stands for in `name`; none if the pattern does not fit.
std::optional<std::string_view> match(std::string_view pattern, std::string_view name) {
  const std::size_t star = pattern.find('*');
  if (star == std::string_view::npos) return pattern == name ? std::optional(std::string_view()) : std::nullopt;
  const std::string_view before = pattern.substr(0, star), after = pattern.substr(star + 1);
  if (name.size() <= before.size() + after.size() || !name.starts_with(before) || !name.ends_with(after)) return {};
  const std::string_view text = name.substr(before.size(), name.size() - before.size() - after.size());
  return text.find('.') == std::string_view::npos ? std::optional(text) : std::nullopt;
}

std::string replaced(std::string_view pattern, std::string_view text) {
  const std::size_t star = pattern.find('*');
  if (star == std::string_view::npos) return std::string(pattern);
  return fmt::format("{}{}{}", pattern.substr(0, star), text, pattern.substr(star + 1));
}

// One of our tensors, and what has been found of it.
struct Joined {
  std::string name;
  std::vector<Tensor> parts;
};

}  // namespace

NamedTensors rename(const NamedTensors& tensors, std::span<const Rename> rules, std::string_view prefix) {
  const NoGrad pause;
  std::vector<Joined> all;
  for (const NamedTensor& entry : tensors) {
    std::string_view theirs = entry.name;
    if (theirs.starts_with(prefix)) theirs.remove_prefix(prefix.size());
    const auto fits = [theirs](const Rename& rule) { return match(rule.theirs, theirs).has_value(); };
    const auto found = std::find_if(rules.begin(), rules.end(), fits);
    const Rename rule = found != rules.end() ? *found : Rename{theirs, theirs};
    if (found != rules.end() && rule.ours.empty()) continue;
    const std::string name =
        found != rules.end() ? replaced(rule.ours, *match(rule.theirs, theirs)) : std::string(theirs);

    auto place = std::find_if(all.begin(), all.end(), [&](const Joined& joined) { return joined.name == name; });
    if (place == all.end()) place = all.insert(all.end(), {name, {}});
    if (place->parts.empty()) place->parts.resize(static_cast<std::size_t>(std::max(rule.parts, 0)));
    if (rule.part < 0 || rule.part >= rule.parts || std::ssize(place->parts) != rule.parts)
      throw Error(fmt::format("rename: {} cannot be part {} of {} of {}", entry.name, rule.part, rule.parts, name));
    Tensor& part = place->parts[static_cast<std::size_t>(rule.part)];
    if (part.defined()) throw Error(fmt::format("rename: two tensors become {}; one is {}", name, entry.name));
    part = rule.transpose ? transpose(entry.tensor, 0, 1) : entry.tensor;
  }

  NamedTensors out;
  for (Joined& joined : all) {
    for (std::size_t i = 0; i < joined.parts.size(); ++i)
      if (!joined.parts[i].defined())
        throw Error(fmt::format("rename: {} is joined of {} tensors; number {} is missing", joined.name,
                                joined.parts.size(), i));
    out.push_back({std::move(joined.name), joined.parts.size() == 1 ? joined.parts[0] : concat(joined.parts)});
  }
  return out;
}

}  // namespace wengert::io
