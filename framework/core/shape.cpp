#include "wengert/shape.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "wengert/error.hpp"

namespace wengert {

Shape::Shape(std::span<const std::int64_t> extents) {
  if (extents.size() > static_cast<std::size_t>(max_rank))
    throw ShapeError(fmt::format("shape: {} axes; at most {} are supported", extents.size(), max_rank));
  bool empty = false;
  std::int64_t nonzero = 1;  // so that [0, 2^62, 4] is refused whatever the order
  for (const std::int64_t extent : extents) {
    if (extent < 0) throw ShapeError(fmt::format("shape: negative extent {}", extent));
    extents_[rank_++] = extent;
    if (extent == 0)
      empty = true;
    else if (__builtin_mul_overflow(nonzero, extent, &nonzero))
      throw ShapeError(fmt::format("shape: {} has more than 2^63 - 1 elements", str()));
  }
  numel_ = empty ? 0 : nonzero;
}

std::int64_t Shape::normalize_axis(std::int64_t axis) const {
  if (axis < -rank_ || axis >= rank_)
    throw ShapeError(fmt::format("axis {} does not exist in shape {} of rank {}", axis, str(), rank_));
  return axis < 0 ? axis + rank_ : axis;
}

Shape Shape::with(std::int64_t axis, std::int64_t extent) const {
  std::int64_t extents[max_rank];
  std::copy(begin(), end(), extents);
  extents[normalize_axis(axis)] = extent;
  return Shape(std::span<const std::int64_t>(extents, static_cast<std::size_t>(rank_)));
}

Shape Shape::without(std::int64_t axis) const {
  std::int64_t extents[max_rank];
  const std::int64_t removed = normalize_axis(axis);
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < rank_; ++i)
    if (i != removed) extents[count++] = extents_[i];
  return Shape(std::span<const std::int64_t>(extents, static_cast<std::size_t>(count)));
}

Shape Shape::sub(std::int64_t first, std::int64_t last) const {
  return Shape(std::span<const std::int64_t>(extents_ + first, static_cast<std::size_t>(last - first)));
}

std::int64_t Shape::product(std::int64_t first, std::int64_t last) const { return sub(first, last).numel(); }

Shape operator+(const Shape& shape, std::int64_t extent) {
  std::int64_t extents[Shape::max_rank + 1];
  std::copy(shape.begin(), shape.end(), extents);
  extents[shape.rank()] = extent;
  return Shape(std::span<const std::int64_t>(extents, static_cast<std::size_t>(shape.rank() + 1)));
}

bool operator==(const Shape& a, const Shape& b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

std::string Shape::str() const { return fmt::format("[{}]", fmt::join(begin(), end(), ", ")); }

Shape broadcast(const char* op, const Shape& a, const Shape& b) {
  const std::int64_t rank = std::max(a.rank(), b.rank());
  std::int64_t extents[Shape::max_rank];
  for (std::int64_t i = 0; i < rank; ++i) {  // i counts from the last axis
    const std::int64_t x = i < a.rank() ? a[a.rank() - 1 - i] : 1;
    const std::int64_t y = i < b.rank() ? b[b.rank() - 1 - i] : 1;
    if (x != y && x != 1 && y != 1)
      throw ShapeError(fmt::format("{}: shapes {} and {} do not broadcast: {} against {}", op, a.str(), b.str(), x, y));
    extents[rank - 1 - i] = x == 1 ? y : x;
  }
  return Shape(std::span<const std::int64_t>(extents, static_cast<std::size_t>(rank)));
}

}  // namespace wengert
