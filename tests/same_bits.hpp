#pragma once
/// Comparison bit for bit, where NaN equals NaN, and values to compare.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "wengert/bits.hpp"

namespace wengert::testing {

template <class T>
bool same_bits(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    using Word = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
    return (std::isnan(a) && std::isnan(b)) || std::bit_cast<Word>(a) == std::bit_cast<Word>(b);
  } else {
    return a == b;
  }
}

/// Index of the first difference, -1 if there is none; sizes must agree too.
template <class T>
std::int64_t first_difference(const std::vector<T>& a, const std::vector<T>& b) {
  if (a.size() != b.size()) return static_cast<std::int64_t>(std::min(a.size(), b.size()));
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!same_bits(a[i], b[i])) return static_cast<std::int64_t>(i);
  return -1;
}
#define CHECK_SAME_BITS(a, ...) CHECK(wengert::testing::first_difference(a, __VA_ARGS__) == -1)

inline std::uint64_t random_word(std::uint64_t seed, std::uint64_t i) {
  const bits::Words words = bits::philox(seed, 7, i);
  return words.word[0] | std::uint64_t{words.word[1]} << 32;
}

/// Numbers of very different size, so that another order of additions gives other bits.
template <class T>
std::vector<T> random_values(std::int64_t count, std::uint64_t seed) {
  std::vector<T> out(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::uint64_t word = random_word(seed, i);
    const double mantissa = static_cast<double>(word >> 11) / 9007199254740992.0 - 0.5;
    out[i] = static_cast<T>(std::ldexp(mantissa, static_cast<int>(word % 16) - 8));
  }
  return out;
}

/// The same, with every seventh value one of -0, +0, the infinities, NaN and a subnormal.
template <class T>
std::vector<T> special_values(std::int64_t count, std::uint64_t seed) {
  using Limits = std::numeric_limits<T>;
  const T special[] = {
      T(-0.0), T(0), Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN(), Limits::denorm_min()};
  std::vector<T> out = random_values<T>(count, seed);
  for (std::size_t i = 0; i < out.size(); i += 7) out[i] = special[(i / 7) % 6];
  return out;
}

inline std::vector<std::int64_t> random_ids(std::int64_t count, std::int64_t rows, std::uint64_t seed) {
  std::vector<std::int64_t> out(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<std::int64_t>(random_word(seed, i) % static_cast<std::uint64_t>(rows));
  return out;
}

}  // namespace wengert::testing
