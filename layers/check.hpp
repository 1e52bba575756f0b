#pragma once
// What the constructors of layers check: settings that make no layer are a ValueError that names them.

#include <fmt/format.h>

#include <cstdint>

#include "wengert/layers/module.hpp"

namespace wengert::layers {

inline std::int64_t require_given(const char* layer, const char* setting, std::int64_t value) {
  if (value == required) throw ValueError(fmt::format("{}: {} is not given", layer, setting));
  return value;
}
inline std::int64_t require_positive(const char* layer, const char* setting, std::int64_t value) {
  require_given(layer, setting, value);
  if (value < 1) throw ValueError(fmt::format("{}: {} is {}; it must be positive", layer, setting, value));
  return value;
}
inline std::int64_t require_size(const char* layer, const char* setting, std::int64_t value) {
  require_given(layer, setting, value);
  if (value < 0) throw ValueError(fmt::format("{}: {} is {}; it must not be negative", layer, setting, value));
  return value;
}
inline void require_defined(const char* layer, const char* what, const Tensor& x) {
  if (!x.defined()) throw Error(fmt::format("{}: {} is undefined", layer, what));
}
inline double require_probability(const char* layer, const char* setting, double p) {
  if (!(p >= 0.0 && p <= 1.0)) throw ValueError(fmt::format("{}: {} is {}; it must be in [0, 1]", layer, setting, p));
  return p;
}

}  // namespace wengert::layers
