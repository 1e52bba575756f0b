#pragma once
/// Element types.

#include <cstddef>
#include <cstdint>

namespace wengert {

/// float32 and float64 carry values and gradients; int32 and int64 carry ids, labels and packed masks.
enum class DType : std::uint8_t { float32, float64, int32, int64 };

/// Bytes of one element.
constexpr std::size_t size_of(DType dtype) { return dtype == DType::float32 || dtype == DType::int32 ? 4 : 8; }

constexpr bool is_floating(DType dtype) { return dtype == DType::float32 || dtype == DType::float64; }

/// "float32", "float64", "int32" or "int64".
constexpr const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::float32: return "float32";
    case DType::float64: return "float64";
    case DType::int32: return "int32";
    case DType::int64: return "int64";
  }
  return "unknown";
}

/// The DType of a C++ type: `dtype_of<float>` is DType::float32.
template <class T>
inline constexpr DType dtype_of = [] {
  static_assert(sizeof(T) == 0, "wengert: element types are float, double, std::int32_t and std::int64_t");
  return DType::float32;
}();
template <>
inline constexpr DType dtype_of<float> = DType::float32;
template <>
inline constexpr DType dtype_of<double> = DType::float64;
template <>
inline constexpr DType dtype_of<std::int32_t> = DType::int32;
template <>
inline constexpr DType dtype_of<std::int64_t> = DType::int64;

}  // namespace wengert
