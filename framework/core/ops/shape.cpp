#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "check.hpp"

namespace wengert {

using namespace detail;

Tensor reshape(const Tensor& x, const Shape& shape) {
  check_defined("reshape", {&x});
  if (shape.numel() != x.numel())
    throw ShapeError(fmt::format("reshape: shape {} of {} elements does not fit shape {} of {} elements",
                                 x.shape().str(), x.numel(), shape.str(), shape.numel()));
  Tensor out = view(x.detach(), shape);
  if (!needs_record("reshape", {x})) return out;
  return record("reshape", out, {x}, {},
                [from = x.shape()](BackwardStep& step) { step.give(0, view(step.grad(), from)); });
}

Tensor reshape(const Tensor& x, std::initializer_list<std::int64_t> extents) {
  check_defined("reshape", {&x});
  std::array<std::int64_t, Shape::max_rank> filled{};
  if (extents.size() > filled.size())
    throw ShapeError(fmt::format("reshape: {} axes; at most {} are supported", extents.size(), Shape::max_rank));
  std::copy(extents.begin(), extents.end(), filled.begin());
  const std::span<std::int64_t> known(filled.data(), extents.size());
  const auto open = std::find(known.begin(), known.end(), -1);
  if (open != known.end()) {
    *open = 1;
    if (std::find(known.begin(), known.end(), -1) != known.end())
      throw ShapeError("reshape: only one extent may be -1");
    const std::int64_t rest = Shape(std::span<const std::int64_t>(known)).numel();
    if (rest == 0 || x.numel() % rest != 0)
      throw ShapeError(fmt::format("reshape: shape {} of {} elements has no extent for -1 in [{}]", x.shape().str(),
                                   x.numel(), fmt::join(extents, ", ")));
    *open = x.numel() / rest;
  }
  return reshape(x, Shape(std::span<const std::int64_t>(known)));
}

Tensor permute(const Tensor& x, std::span<const std::int64_t> axes) {
  check_defined("permute", {&x});
  const Shape& shape = x.shape();
  if (static_cast<std::int64_t>(axes.size()) != shape.rank())
    throw ShapeError(fmt::format("permute: {} axes given for shape {}", axes.size(), shape.str()));
  std::array<std::int64_t, Shape::max_rank> extents{}, inverse{};
  inverse.fill(-1);
  const StridedView own = row_major(shape);
  StridedView from;
  for (std::int64_t i = 0; i < shape.rank(); ++i) {
    const std::int64_t axis = check_axis("permute", shape, axes[static_cast<std::size_t>(i)]);
    if (inverse[axis] != -1)
      throw ShapeError(fmt::format("permute: axis {} of shape {} is named twice", axis, shape.str()));
    inverse[axis] = i;
    extents[i] = shape[axis];
    from.strides[i] = own.strides[axis];
  }
  Tensor out = empty(Shape(std::span<const std::int64_t>(extents.data(), axes.size())), x);
  out.kernels().copy_strided(out.shape(), x, from, out, row_major(out.shape()));
  if (!needs_record("permute", {x})) return out;
  return record("permute", out, {x}, {}, [inverse, rank = axes.size()](BackwardStep& step) {
    step.give(0, permute(step.grad(), std::span(inverse.data(), rank)));
  });
}

Tensor permute(const Tensor& x, std::initializer_list<std::int64_t> axes) {
  return permute(x, std::span(axes.begin(), axes.size()));
}

Tensor transpose(const Tensor& x, std::int64_t axis0, std::int64_t axis1) {
  check_defined("transpose", {&x});
  std::array<std::int64_t, Shape::max_rank> axes{};
  for (std::int64_t i = 0; i < x.dim(); ++i) axes[i] = i;
  std::swap(axes[check_axis("transpose", x.shape(), axis0)], axes[check_axis("transpose", x.shape(), axis1)]);
  return permute(x, std::span(axes.data(), static_cast<std::size_t>(x.dim())));
}

namespace {

// Copies between the whole of `part` and those places of `whole` that begin at `start` along `axis`.
void copy_part(const Tensor& from, Tensor& to, const Shape& part, const Shape& whole, std::int64_t axis,
               std::int64_t start, bool into_whole) {
  StridedView inside = row_major(whole);
  inside.offset = start * inside.strides[axis];
  to.kernels().copy_strided(part, from, into_whole ? row_major(part) : inside, to,
                            into_whole ? inside : row_major(part));
}

Tensor take(const Tensor& x, std::int64_t axis, std::int64_t start, std::int64_t length) {
  Tensor out = empty(x.shape().with(axis, length), x);
  copy_part(x, out, out.shape(), x.shape(), axis, start, false);
  return out;
}

}  // namespace

Tensor slice(const Tensor& x, std::int64_t axis, std::int64_t start, std::optional<std::int64_t> stop) {
  check_defined("slice", {&x});
  axis = check_axis("slice", x.shape(), axis);
  const std::int64_t extent = x.shape()[axis];
  const auto bound = [extent](std::int64_t at) {
    return std::clamp<std::int64_t>(at < 0 ? at + extent : at, 0, extent);
  };
  const std::int64_t first = bound(start), last = stop ? bound(*stop) : extent;
  Tensor out = take(x, axis, first, std::max<std::int64_t>(last - first, 0));
  if (!needs_record("slice", {x})) return out;
  return record("slice", out, {x}, {}, [shape = x.shape(), axis, first](BackwardStep& step) {
    Tensor grad = zeros(shape, step.grad());
    copy_part(step.grad(), grad, step.grad().shape(), shape, axis, first, true);
    step.give(0, grad);
  });
}

Tensor concat(std::span<const Tensor> tensors, std::int64_t axis) {
  if (tensors.empty()) throw ShapeError("concat: no tensors");
  for (const Tensor& tensor : tensors) check_defined("concat", {&tensor});
  const Tensor& head = tensors.front();
  axis = check_axis("concat", head.shape(), axis);
  std::int64_t total = 0;
  for (const Tensor& tensor : tensors) {
    check_same_backend("concat", head, tensor);
    if (tensor.dtype() != head.dtype())
      throw DTypeError(fmt::format("concat: two types, {} and {}; convert one with to()", name_of(head.dtype()),
                                   name_of(tensor.dtype())));
    if (tensor.dim() != head.dim() || !(tensor.shape().with(axis, 0) == head.shape().with(axis, 0)))
      throw ShapeError(fmt::format("concat: shapes {} and {} do not fit: they may differ only along axis {}",
                                   head.shape().str(), tensor.shape().str(), axis));
    if (__builtin_add_overflow(total, tensor.shape()[axis], &total))
      throw ShapeError("concat: the result is too large");
  }
  Tensor out = empty(head.shape().with(axis, total), head);
  std::int64_t start = 0;
  for (const Tensor& tensor : tensors) {
    copy_part(tensor, out, tensor.shape(), out.shape(), axis, start, true);
    start += tensor.shape()[axis];
  }
  if (!needs_record("concat", tensors)) return out;
  // The extents along the axis: on the spot for the usual few inputs, on the heap for more.
  struct Extents {
    std::array<std::int64_t, 8> few{};
    std::vector<std::int64_t> many;
    std::size_t count;
    std::int64_t operator[](std::size_t i) const { return count <= few.size() ? few[i] : many[i]; }
  } extents{{}, {}, tensors.size()};
  if (tensors.size() > extents.few.size()) extents.many.resize(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i)
    (extents.many.empty() ? extents.few[i] : extents.many[i]) = tensors[i].shape()[axis];
  return record("concat", out, tensors, {}, [extents = std::move(extents), axis](BackwardStep& step) {
    for (std::size_t i = 0, begin = 0; i < extents.count; begin += static_cast<std::size_t>(extents[i++]))
      if (step.needs(i)) step.give(i, take(step.grad(), axis, static_cast<std::int64_t>(begin), extents[i]));
  });
}

Tensor concat(std::initializer_list<Tensor> tensors, std::int64_t axis) {
  return concat(std::span(tensors.begin(), tensors.size()), axis);
}

Tensor broadcast_to(const Tensor& x, const Shape& shape) {
  check_defined("broadcast_to", {&x});
  if (!(broadcast("broadcast_to", x.shape(), shape) == shape))
    throw ShapeError(fmt::format("broadcast_to: shape {} does not broadcast to {}", x.shape().str(), shape.str()));
  if (x.shape() == shape) return x.clone();
  Tensor out = expand(x, shape);
  if (!needs_record("broadcast_to", {x})) return out;
  return record("broadcast_to", out, {x}, {},
                [from = x.shape()](BackwardStep& step) { step.give(0, sum_to(step.grad(), from)); });
}

}  // namespace wengert
