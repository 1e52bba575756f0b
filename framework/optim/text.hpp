#pragma once
// Small helpers of the optimisers' error texts.

#include <fmt/format.h>

#include <span>
#include <string>
#include <vector>

namespace wengert::optim::detail {

// "; what: a, b" or nothing for an empty list.
inline std::string listed(const char* what, const std::vector<std::string>& names) {
  return names.empty() ? std::string() : fmt::format("; {}: {}", what, fmt::join(names, ", "));
}

}  // namespace wengert::optim::detail
