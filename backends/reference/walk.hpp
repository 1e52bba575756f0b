#pragma once
// The index space of a strided copy.

#include "wengert/kernels.hpp"

namespace wengert::reference {

// With as few axes as describe it, but at least two; axis 0 is the innermost.
struct Walk {
  std::int64_t rank = 0;
  std::int64_t extents[Shape::max_rank] = {};
  std::int64_t from[Shape::max_rank] = {}, to[Shape::max_rank] = {};

  Walk(const Shape& extent, const StridedView& source, const StridedView& target) {
    for (std::int64_t axis = extent.rank() - 1; axis >= 0; --axis)
      if (extent[axis] != 1) push(extent[axis], source.strides[axis], target.strides[axis]);
    while (rank < 2) extents[rank] = 1, from[rank] = to[rank] = 1, ++rank;
  }

 private:
  void push(std::int64_t extent, std::int64_t stride_from, std::int64_t stride_to) {
    if (rank > 0) {
      const std::int64_t i = rank - 1;
      if (stride_from == from[i] * extents[i] && stride_to == to[i] * extents[i]) {
        extents[i] *= extent;
        return;
      }
    }
    extents[rank] = extent;
    from[rank] = stride_from;
    to[rank++] = stride_to;
  }
};

}  // namespace wengert::reference
