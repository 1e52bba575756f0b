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

// The parts that have been found of one of our tensors.
struct Found {
  std::string name;
  std::vector<Tensor> parts;
};

}  // namespace

NamedTensors rename(const NamedTensors& tensors, std::span<const Rename> rules, std::string_view prefix) {
  const NoGrad pause;
  std::vector<Found> all;
  for (const NamedTensor& entry : tensors) {
    std::string_view theirs = entry.name;
    if (theirs.starts_with(prefix)) theirs.remove_prefix(prefix.size());
    Rename rule{theirs, theirs};
    std::string name(theirs);
    for (const Rename& candidate : rules) {
      const auto text = match(candidate.theirs, theirs);
      if (!text) continue;
      rule = candidate;
      name = replaced(rule.ours, *text);
      break;
    }
    if (rule.ours.empty() && !rule.theirs.empty()) continue;
    auto place = std::find_if(all.begin(), all.end(), [&](const Found& found) { return found.name == name; });
    if (place == all.end())
      place = all.insert(all.end(), {name, std::vector<Tensor>(static_cast<std::size_t>(rule.parts))});
    Tensor& part = place->parts.at(static_cast<std::size_t>(rule.part));
    if (part.defined()) throw Error(fmt::format("rename: two tensors become {}; one is {}", name, entry.name));
    part = rule.transpose ? transpose(entry.tensor, 0, 1) : entry.tensor;
  }

  NamedTensors out;
  for (Found& found : all) {
    for (std::size_t i = 0; i < found.parts.size(); ++i)
      if (!found.parts[i].defined())
        throw Error(
            fmt::format("rename: {} is joined of {} tensors; number {} is missing", found.name, found.parts.size(), i));
    out.push_back({std::move(found.name), found.parts.size() == 1 ? found.parts[0] : concat(found.parts)});
  }
  return out;
}

}  // namespace wengert::io
