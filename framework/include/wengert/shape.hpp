#pragma once
/// Shapes: up to eight extents, stored inline, immutable once made.

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace wengert {

/// The extents of a tensor, outermost first. `Shape{}` is a scalar: rank 0, one element. Extents may be 0.
class Shape {
 public:
  static constexpr std::int64_t max_rank = 8;

  Shape() = default;
  /// Throws ShapeError for a negative extent, a rank above 8, or an element count above 2^63 - 1.
  Shape(std::initializer_list<std::int64_t> extents) : Shape(std::span(extents.begin(), extents.size())) {}
  explicit Shape(std::span<const std::int64_t> extents);

  std::int64_t rank() const { return rank_; }
  /// Number of elements: the product of the extents, 1 for a scalar.
  std::int64_t numel() const { return numel_; }
  /// Extent of axis `i`, 0 <= i < rank (unchecked).
  std::int64_t operator[](std::int64_t i) const { return extents_[i]; }
  /// Extent of `axis`; negative axes count from the end. Throws ShapeError when there is no such axis.
  std::int64_t size(std::int64_t axis) const { return extents_[normalize_axis(axis)]; }
  /// `axis` as a number in [0, rank); negative axes count from the end. Throws ShapeError when there is no such axis.
  std::int64_t normalize_axis(std::int64_t axis) const;

  const std::int64_t* begin() const { return extents_; }
  const std::int64_t* end() const { return extents_ + rank_; }

  /// This shape with the extent of `axis` replaced.
  Shape with(std::int64_t axis, std::int64_t extent) const;
  /// This shape without `axis`.
  Shape without(std::int64_t axis) const;
  /// Axes [first, last) of this shape.
  Shape sub(std::int64_t first, std::int64_t last) const;
  /// Product of the extents of axes [first, last).
  std::int64_t product(std::int64_t first, std::int64_t last) const;
  /// Append one extent: `ids.shape() + 64`.
  friend Shape operator+(const Shape& shape, std::int64_t extent);
  friend bool operator==(const Shape& a, const Shape& b);

  /// "[2, 3]"; "[]" for a scalar.
  std::string str() const;

 private:
  std::int64_t extents_[max_rank] = {};
  std::int64_t rank_ = 0;
  std::int64_t numel_ = 1;
};

/// The shape that `a` and `b` broadcast to by NumPy's rule: axes are matched from the last; extents must be equal or 1.
/// Throws ShapeError that names `op` and both shapes.
Shape broadcast(const char* op, const Shape& a, const Shape& b);

}  // namespace wengert
