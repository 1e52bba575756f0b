#include "check.hpp"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "tensor_impl.hpp"
#include "wengert/bits.hpp"

namespace wengert::detail {

namespace {

// "[3, 17]": the place of flat element `flat`.
std::string place(const Shape& shape, std::int64_t flat) {
  std::int64_t index[Shape::max_rank];
  for (std::int64_t axis = shape.rank() - 1; axis >= 0; --axis) {
    index[axis] = flat % shape[axis];
    flat /= shape[axis];
  }
  return fmt::format("[{}]", fmt::join(index, index + shape.rank(), ", "));
}

}  // namespace

void check_defined(const char* op, std::initializer_list<const Tensor*> tensors) {
  std::size_t i = 0;
  for (const Tensor* tensor : tensors) {
    if (!tensor->defined()) throw Error(fmt::format("{}: operand {} is undefined", op, i));
    ++i;
  }
}

void check_same_backend(const char* op, const Tensor& a, const Tensor& b) {
  if (&a.backend() != &b.backend())
    throw BackendError(fmt::format("{}: the operands live on two backends, {} and {}; move one with to()", op,
                                   a.backend().name(), b.backend().name()));
}

void check_operands(const char* op, std::initializer_list<const Tensor*> tensors) {
  check_defined(op, tensors);
  const Tensor& first = **tensors.begin();
  for (const Tensor* tensor : tensors) {
    if (!is_floating(tensor->dtype()))
      throw DTypeError(fmt::format("{}: operands must be float32 or float64, got {}", op, name_of(tensor->dtype())));
    if (tensor->dtype() != first.dtype())
      throw DTypeError(fmt::format("{}: operands have two types, {} and {}; convert one with to()", op,
                                   name_of(first.dtype()), name_of(tensor->dtype())));
    check_same_backend(op, first, *tensor);
  }
}

void check_rank(const char* op, const char* what, const Tensor& x, std::int64_t rank, const char* expected) {
  if (x.dim() != rank)
    throw ShapeError(fmt::format("{}: {} must have shape {}, got {}", op, what, expected, x.shape().str()));
}

std::int64_t check_axis(const char* op, const Shape& shape, std::int64_t axis) {
  if (axis < -shape.rank() || axis >= shape.rank())
    throw ShapeError(fmt::format("{}: shape {} has no axis {}", op, shape.str(), axis));
  return axis < 0 ? axis + shape.rank() : axis;
}

Tensor int64_ids(const char* op, const char* what, const Tensor& ids, bool own) {
  if (is_floating(ids.dtype()))
    throw DTypeError(fmt::format("{}: {}s must be int32 or int64, got {}", op, what, name_of(ids.dtype())));
  if (ids.dtype() != DType::int64) return ids.to(DType::int64);
  return own ? ids.clone() : ids;
}

IdRange id_range(const Tensor& ids, const Tensor& wide) {
  // Ordinary code may have changed host memory through a pointer that it obtained earlier, so there a range is never
  // trusted; looking again costs next to nothing beside the lookup.
  Storage& storage = ids.storage();
  if (storage.memory().host_visible()) return wide.kernels().id_range(wide, {});
  if (!storage.id_range()) storage.set_id_range(wide.kernels().id_range(wide, {}));
  wide.storage().set_id_range(*storage.id_range());
  return *storage.id_range();
}

Tensor check_ids(const char* op, const char* what, const Tensor& ids, std::int64_t rows, bool own) {
  Tensor wide = int64_ids(op, what, ids, own);
  const IdRange range = id_range(ids, wide);
  if (!range.within(rows)) throw_bad_id(op, what, wide, rows);
  return wide;
}

void throw_bad_id(const char* op, const char* what, const Tensor& ids, std::int64_t rows,
                  std::optional<std::int64_t> ignore) {
  const std::vector<std::int64_t> values = ids.to_vector<std::int64_t>();
  for (std::size_t i = 0; i < values.size(); ++i)
    if ((values[i] < 0 || values[i] >= rows) && values[i] != ignore)
      throw IndexError(fmt::format("{}: {} {} at {} is outside [0, {})", op, what, values[i],
                                   place(ids.shape(), static_cast<std::int64_t>(i)), rows));
  throw IndexError(fmt::format("{}: a {} was outside [0, {}), and the ids have changed since", op, what, rows));
}

void check_padding(const char* op, std::optional<std::int64_t> padding_idx, std::int64_t rows) {
  if (padding_idx && (*padding_idx < 0 || *padding_idx >= rows))
    throw IndexError(fmt::format("{}: padding_idx {} is outside [0, {})", op, *padding_idx, rows));
}

void check_probability(const char* op, double p) {
  if (!(p >= 0.0 && p <= 1.0)) throw ValueError(fmt::format("{}: p is {}, but must be in [0, 1]", op, p));
}

Dropout draw_dropout(double p, bool training, std::int64_t count) {
  if (!training || p == 0.0) return {};
  return {p, default_generator().reserve(p < 1.0 ? bits::dropout_counters(count) : 0)};
}

StridedView row_major(const Shape& shape) {
  StridedView view;
  std::int64_t stride = 1;
  for (std::int64_t axis = shape.rank() - 1; axis >= 0; --axis) {
    view.strides[axis] = stride;
    stride *= shape[axis];
  }
  return view;
}

Tensor view(const Tensor& x, const Shape& shape) { return x.shape() == shape ? x : TensorAccess::alias(x, shape); }

Tensor expand(const Tensor& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  Tensor out = empty(shape, x);
  StridedView from;
  const StridedView own = row_major(x.shape());
  const std::int64_t added = shape.rank() - x.dim();
  for (std::int64_t axis = added; axis < shape.rank(); ++axis)
    if (x.shape()[axis - added] != 1) from.strides[axis] = own.strides[axis - added];
  out.kernels().copy_strided(shape, x, from, out, row_major(shape));
  return out;
}

Tensor sum_to(const Tensor& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  const Shape& from = x.shape();
  const std::int64_t added = from.rank() - shape.rank();
  const auto repeated = [&](std::int64_t axis) {
    return axis < added || (shape[axis - added] == 1 && from[axis] != 1);
  };
  Tensor sum = x;
  std::int64_t outer = 1;  // elements of the axes before `axis` that stay
  for (std::int64_t axis = 0; axis < from.rank();) {
    if (!repeated(axis)) {
      outer *= from[axis++];
      continue;
    }
    std::int64_t n = 1;
    while (axis < from.rank() && (repeated(axis) || from[axis] == 1)) n *= from[axis++];
    if (n == 1) continue;
    const Axis group{outer, n, from.product(axis, from.rank())};
    sum = reduce(Reduce::sum, group, sum, {group.outer, group.inner});
  }
  return view(sum, shape);
}

Tensor reduce(Reduce op, const Axis& axis, const Tensor& x, const Shape& shape) {
  Tensor out = empty(shape, x);
  out.kernels().reduce(op, axis, x, out);
  return out;
}

Tensor unary(Unary op, const Tensor& x, double scalar) {
  Tensor out = empty(x.shape(), x);
  out.kernels().unary(op, x, scalar, out);
  return out;
}

Tensor binary(Binary op, const Tensor& a, const Tensor& b) {
  Tensor out = empty(broadcast("broadcast", a.shape(), b.shape()), a);
  out.kernels().binary(op, a, b, out);
  return out;
}

}  // namespace wengert::detail
