// New tensors: of values on the host, of braces, filled, counting.

#include <fmt/format.h>

#include <algorithm>

#include "tensor_impl.hpp"
#include "wengert/kernels.hpp"

namespace wengert {

using detail::TensorAccess;

Tensor empty(const Shape& shape, DType dtype, Backend& backend) {
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(static_cast<std::size_t>(shape.numel()), size_of(dtype), &bytes))
    throw ShapeError(fmt::format("empty: shape {} of {} does not fit into memory", shape.str(), name_of(dtype)));
  return TensorAccess::make(Storage::make(backend.memory(), bytes), shape, dtype, backend);
}
Tensor empty(const Shape& shape, const Tensor& like) { return empty(shape, like.dtype(), like.backend()); }

Tensor full(const Shape& shape, double value, DType dtype, Backend& backend) {
  Tensor out = empty(shape, dtype, backend);
  out.kernels().fill(out, value);
  return out;
}
Tensor full(const Shape& shape, double value, const Tensor& like) {
  return full(shape, value, like.dtype(), like.backend());
}
Tensor zeros(const Shape& shape, DType dtype, Backend& backend) { return full(shape, 0.0, dtype, backend); }
Tensor zeros(const Shape& shape, const Tensor& like) { return full(shape, 0.0, like); }
Tensor ones(const Shape& shape, DType dtype, Backend& backend) { return full(shape, 1.0, dtype, backend); }
Tensor ones(const Shape& shape, const Tensor& like) { return full(shape, 1.0, like); }

Tensor arange(std::int64_t start, std::int64_t stop, DType dtype, Backend& backend) {
  std::int64_t count = 0;
  if (stop < start || __builtin_sub_overflow(stop, start, &count))
    throw ValueError(fmt::format("arange: from {} to {}; the end must not come before the start", start, stop));
  Tensor out = empty({count}, DType::int64, backend);
  out.kernels().iota(out, start);
  return out.to(dtype);
}

namespace detail {

Tensor tensor_from_host(const void* values, const Shape& shape, DType dtype, Backend& backend) {
  Tensor out = empty(shape, dtype, backend);
  out.storage().memory().upload(out.storage().write(), values, out.storage().bytes());
  // Ids and labels: where the host could not look again for free, look while the values are here.
  if (dtype == DType::int64 && !out.storage().memory().host_visible()) {
    IdRange range;
    for (const std::int64_t id :
         std::span(static_cast<const std::int64_t*>(values), static_cast<std::size_t>(shape.numel()))) {
      range.smallest = std::min(range.smallest, id);
      range.largest = std::max(range.largest, id);
    }
    out.storage().set_id_range(range);
  }
  return out;
}

namespace {

struct Extents {
  std::int64_t values[Shape::max_rank];
  std::size_t rank = 0;
  bool complete = false;  // a value has been seen: no deeper axis can follow
};

// Walks the braces in row-major order; the first brace of each depth fixes that extent.
template <class T>
void flatten(const Nested<T>& nested, std::size_t depth, Extents& extents, std::vector<T>& values) {
  if (!nested.list) {
    if (depth != extents.rank) throw ShapeError("tensor: the braces are ragged");
    extents.complete = true;
    return values.push_back(nested.value);
  }
  const auto count = static_cast<std::int64_t>(nested.items.size());
  if (depth == extents.rank && !extents.complete) {
    if (extents.rank == std::size_t{Shape::max_rank}) throw ShapeError("tensor: the braces nest deeper than 8 axes");
    extents.values[extents.rank++] = count;
    extents.complete = count == 0;
  }
  if (depth >= extents.rank || extents.values[depth] != count) throw ShapeError("tensor: the braces are ragged");
  for (const Nested<T>& item : nested.items) flatten(item, depth + 1, extents, values);
}

}  // namespace

template <class T>
Tensor tensor_from_braces(const Nested<T>& values, Backend& backend) {
  Extents extents;
  std::vector<T> flat;
  flatten(values, 0, extents, flat);
  return tensor_from_host(flat.data(), Shape(std::span<const std::int64_t>(extents.values, extents.rank)), dtype_of<T>,
                          backend);
}

template Tensor tensor_from_braces(const Nested<float>&, Backend&);
template Tensor tensor_from_braces(const Nested<double>&, Backend&);
template Tensor tensor_from_braces(const Nested<std::int32_t>&, Backend&);
template Tensor tensor_from_braces(const Nested<std::int64_t>&, Backend&);

}  // namespace detail
}  // namespace wengert
