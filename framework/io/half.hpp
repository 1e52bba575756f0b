#pragma once
// The 16-bit floating types of files. Bits alone are moved: the floating-point mode of the thread plays no part.

#include <bit>
#include <cstdint>
#include <type_traits>

namespace wengert::io::detail {

// A binary format of one sign bit, `exponent` bits and `mantissa` bits.
struct Format {
  int exponent, mantissa;
  constexpr int bias() const { return (1 << (exponent - 1)) - 1; }
};
inline constexpr Format binary16{5, 10}, bfloat16{8, 7}, binary32{8, 23}, binary64{11, 52};

// Rounds to nearest, ties to even. NaN stays NaN and keeps the upper bits of its payload, what is too large becomes
// infinity, subnormals are kept.
template <Format to, class T>
constexpr std::uint16_t narrow(T value) {
  constexpr bool single = sizeof(T) == 4;
  constexpr Format from = single ? binary32 : binary64;
  const auto bits = std::uint64_t{std::bit_cast<std::conditional_t<single, std::uint32_t, std::uint64_t>>(value)};
  const std::uint64_t fraction = bits & ((std::uint64_t{1} << from.mantissa) - 1);
  const int field = static_cast<int>(bits >> from.mantissa) & ((1 << from.exponent) - 1);
  const auto sign = static_cast<std::uint64_t>(bits >> (from.mantissa + from.exponent)) << 15;
  constexpr auto infinity = ((std::uint64_t{1} << to.exponent) - 1) << to.mantissa;
  const auto signed_bits = [sign](std::uint64_t magnitude) { return static_cast<std::uint16_t>(sign | magnitude); };

  constexpr int dropped = from.mantissa - to.mantissa;
  if (field == (1 << from.exponent) - 1) {
    constexpr auto quiet = std::uint64_t{1} << (to.mantissa - 1);
    return signed_bits(fraction == 0 ? infinity : infinity | quiet | fraction >> dropped);
  }
  // The value is significand * 2^(exponent - from.mantissa).
  const std::uint64_t significand = fraction | std::uint64_t{field != 0} << from.mantissa;
  const int exponent = (field != 0 ? field : 1) - from.bias();
  if (exponent > to.bias()) return signed_bits(infinity);
  const int smallest = 1 - to.bias();
  const int shift = exponent < smallest ? dropped + smallest - exponent : dropped;
  if (shift > from.mantissa + 1) return signed_bits(0);
  const std::uint64_t half = std::uint64_t{1} << (shift - 1), rest = significand & (2 * half - 1);
  std::uint64_t rounded = significand >> shift;
  rounded += rest > half || (rest == half && rounded % 2 == 1);
  // Adding, not joining: the leading one, or a carry, counts the exponent up, if need be into infinity.
  const std::uint64_t field_below = exponent < smallest ? 0 : static_cast<std::uint64_t>(exponent - smallest);
  return signed_bits((field_below << to.mantissa) + rounded);
}

constexpr float widen_bfloat16(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

constexpr float widen_binary16(std::uint16_t bits) {
  const std::uint32_t sign = std::uint32_t{bits} >> 15 << 31, field = bits >> 10 & 0x1FU, fraction = bits & 0x3FFU;
  if (field == 0) {  // fraction * 2^-24, a normal float32
    const auto magnitude = std::bit_cast<std::uint32_t>(static_cast<float>(fraction) * 0x1p-24F);
    return std::bit_cast<float>(sign | magnitude);
  }
  const std::uint32_t exponent = field == 0x1F ? 0xFF : field - 15 + 127;
  return std::bit_cast<float>(sign | exponent << 23 | fraction << 13);
}

}  // namespace wengert::io::detail
