// Fill, count, and strided copies, for every element type.

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <type_traits>

#include "arrays.hpp"
#include "wengert/backends/reference.hpp"
#include "wengert/bits.hpp"
#include "wengert/walk.hpp"

namespace wengert::reference {

namespace {

// Calls f with a null pointer of the C++ type of `dtype`.
template <class F>
void with_type(DType dtype, F f) {
  switch (dtype) {
    case DType::float32: return f(static_cast<float*>(nullptr));
    case DType::float64: return f(static_cast<double*>(nullptr));
    case DType::int32: return f(static_cast<std::int32_t*>(nullptr));
    case DType::int64: return f(static_cast<std::int64_t*>(nullptr));
  }
}

// What C++ does, except that a floating value outside an integer type becomes its nearest value, and NaN becomes 0.
template <class To, class From>
To convert(From value) {
  if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    constexpr From limit = -static_cast<From>(std::numeric_limits<To>::min());  // a power of two, exact
    if (value != value) return 0;
    if (value >= limit) return std::numeric_limits<To>::max();
    if (value <= -limit) return std::numeric_limits<To>::min();
  }
  return static_cast<To>(value);
}

// The two innermost axes.
template <class From, class To>
void copy_plane(const Walk& walk, const From* from, To* to) {
  const std::int64_t lines = walk.extents[1], count = walk.extents[0];
  if (walk.a[0] == 1 && walk.b[0] == 1) {
    for (std::int64_t i = 0; i < lines; ++i) {
      const From* source = from + i * walk.a[1];
      To* target = to + i * walk.b[1];
      if constexpr (std::is_same_v<From, To>)
        std::memcpy(target, source, static_cast<std::size_t>(count) * sizeof(To));
      else
        assign(
            target, count, [](From value) { return convert<To>(value); }, flat(source, count));
    }
    return;
  }
  constexpr std::int64_t tile = 16;  // a transpose touches no cache line twice within a tile of this side
  for (std::int64_t i0 = 0; i0 < lines; i0 += tile)
    for (std::int64_t j0 = 0; j0 < count; j0 += tile)
      for (std::int64_t i = i0; i < std::min(i0 + tile, lines); ++i)
        for (std::int64_t j = j0; j < std::min(j0 + tile, count); ++j)
          to[i * walk.b[1] + j * walk.b[0]] = convert<To>(from[i * walk.a[1] + j * walk.a[0]]);
}

template <class From, class To>
void copy(const Walk& walk, const From* from, To* to) {
  std::int64_t index[Shape::max_rank] = {};
  for (;;) {
    copy_plane(walk, from, to);
    std::int64_t axis = 2;
    for (; axis < walk.rank; ++axis) {
      from += walk.a[axis];
      to += walk.b[axis];
      if (++index[axis] < walk.extents[axis]) break;
      from -= walk.a[axis] * walk.extents[axis];
      to -= walk.b[axis] * walk.extents[axis];
      index[axis] = 0;
    }
    if (axis >= walk.rank) return;
  }
}

}  // namespace

template <class T>
void Kernels<T>::fill(Tensor& out, double value) {
  void* data = out.storage().write();
  with_type(out.dtype(), [&]<class To>(To*) { std::fill_n(static_cast<To*>(data), out.numel(), convert<To>(value)); });
}

template <class T>
void Kernels<T>::iota(Tensor& out, std::int64_t start) {
  auto* values = write<std::int64_t>(out);
  std::iota(values, values + out.numel(), start);
}

template <class T>
void Kernels<T>::copy_strided(const Shape& extent, const Tensor& in, const StridedView& from, Tensor& out,
                              const StridedView& to) {
  const void* source = in.storage().read();
  void* target = out.storage().write();
  if (extent.numel() == 0) return;
  const Walk walk(extent, from, to);
  with_type(in.dtype(), [&]<class From>(From*) {
    with_type(out.dtype(), [&]<class To>(To*) {
      copy(walk, static_cast<const From*>(source) + from.offset, static_cast<To*>(target) + to.offset);
    });
  });
}

#define WENGERT_INSTANTIATE(T)                           \
  template void Kernels<T>::fill(Tensor&, double);       \
  template void Kernels<T>::iota(Tensor&, std::int64_t); \
  template void Kernels<T>::copy_strided(const Shape&, const Tensor&, const StridedView&, Tensor&, const StridedView&);
WENGERT_INSTANTIATE(float)
WENGERT_INSTANTIATE(double)
#undef WENGERT_INSTANTIATE

}  // namespace wengert::reference
