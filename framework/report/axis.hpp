#pragma once
/// Ticks: round numbers within a range, and their text.

#include <string>
#include <vector>

namespace wengert::report {

struct Tick {
  double value;
  std::string text;
};

/// Multiples of 1, 2 or 5 times a power of ten inside [low, high], about `count` of them.
std::vector<Tick> ticks(double low, double high, int count, bool whole_numbers = false);

}  // namespace wengert::report
