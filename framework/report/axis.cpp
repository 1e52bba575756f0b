#include "axis.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace wengert::report {

namespace {

std::string number(double value, double step) {
  const int decimals = std::max(0, static_cast<int>(-std::floor(std::log10(step) + 1e-9)));
  const bool plain = decimals <= 4 && std::abs(value) < 1e6;
  std::string text = plain ? fmt::format("{:.{}f}", std::abs(value), decimals) : fmt::format("{:.3g}", std::abs(value));
  return value < 0 ? "\u2212" + text : text;
}

}  // namespace

std::vector<Tick> ticks(double low, double high, int count, bool whole_numbers) {
  const double rough = (high - low) / std::max(count, 1);
  if (!(rough > 0) || !std::isfinite(rough)) return {{low, number(low, 1.0)}};
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  const double leading = rough / power;  // from 1 to 10
  double step = power * (leading < 1.5 ? 1 : leading < 3.5 ? 2 : leading < 7.5 ? 5 : 10);
  if (whole_numbers) step = std::max(step, 1.0);
  std::vector<Tick> result;
  const double slack = step * 1e-6;
  for (auto i = static_cast<long>(std::ceil((low - slack) / step)); static_cast<double>(i) * step <= high + slack; ++i)
    result.push_back({static_cast<double>(i) * step, number(static_cast<double>(i) * step, step)});
  return result;
}

}  // namespace wengert::report
