#pragma once
/// The order in which kernels walk strided operands.

#include <cstdint>

#include "wengert/kernels.hpp"

namespace wengert {

/// Two operands of one index space, a and b, with as few axes as describe it: neighbouring axes that both operands
/// cross without a jump are joined, and axes of extent 1 left out. Axis 0 is the innermost. There is at least one axis;
/// behind the last one, extents and strides are 1. Plain numbers, to be handed to a device as they are.
struct Walk {
  std::int64_t rank = 0;
  std::int64_t extents[Shape::max_rank];
  std::int64_t a[Shape::max_rank], b[Shape::max_rank];  ///< strides, in elements

  /// Views of shape `extent`, as of a copy from a to b. Offsets do not count.
  Walk(const Shape& extent, const StridedView& view_a, const StridedView& view_b) : Walk() {
    for (std::int64_t axis = extent.rank() - 1; axis >= 0; --axis)
      push(extent[axis], view_a.strides[axis], view_b.strides[axis]);
    if (rank == 0) rank = 1;
  }

  /// Contiguous operands of these shapes, broadcast to `out`: a stride is 0 where an operand repeats itself.
  Walk(const Shape& out, const Shape& shape_a, const Shape& shape_b) : Walk() {
    std::int64_t next_a = 1, next_b = 1;  // strides of the coming axis, were it not broadcast
    for (std::int64_t axis = 1; axis <= out.rank(); ++axis) {
      const std::int64_t extent_a = axis <= shape_a.rank() ? shape_a[shape_a.rank() - axis] : 1;
      const std::int64_t extent_b = axis <= shape_b.rank() ? shape_b[shape_b.rank() - axis] : 1;
      push(out[out.rank() - axis], extent_a == 1 ? 0 : next_a, extent_b == 1 ? 0 : next_b);
      next_a *= extent_a;
      next_b *= extent_b;
    }
    if (rank == 0) rank = 1;
  }

  /// Where both operands stand at step `index` over the axes from `first` on, in the order of their elements.
  struct Offsets {
    std::int64_t a = 0, b = 0;
  };
  Offsets at(std::int64_t index, std::int64_t first) const {
    Offsets offsets;
    for (std::int64_t axis = first; axis < rank; index /= extents[axis++]) {
      offsets.a += index % extents[axis] * a[axis];
      offsets.b += index % extents[axis] * b[axis];
    }
    return offsets;
  }

 private:
  Walk() {
    for (std::int64_t i = 0; i < Shape::max_rank; ++i) extents[i] = a[i] = b[i] = 1;
  }
  void push(std::int64_t extent, std::int64_t stride_a, std::int64_t stride_b) {
    if (extent == 1) return;
    if (const std::int64_t i = rank - 1; i >= 0 && stride_a == a[i] * extents[i] && stride_b == b[i] * extents[i]) {
      extents[i] *= extent;
      return;
    }
    extents[rank] = extent;
    a[rank] = stride_a;
    b[rank++] = stride_b;
  }
};

}  // namespace wengert
