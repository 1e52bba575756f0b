#pragma once
// What the operations share: argument checks whose texts name the operation, and a few steps that are not recorded.

#include <cstdint>
#include <initializer_list>
#include <optional>

#include "wengert/error.hpp"
#include "wengert/kernels.hpp"
#include "wengert/ops.hpp"
#include "wengert/tape.hpp"

namespace wengert::detail {

// Throws Error unless all tensors are defined.
void check_defined(const char* op, std::initializer_list<const Tensor*> tensors);
// Throws unless all tensors are defined, of one floating type, on one backend.
void check_operands(const char* op, std::initializer_list<const Tensor*> tensors);
inline void check_operand(const char* op, const Tensor& x) { check_operands(op, {&x}); }
inline void check_operands(const char* op, const Tensor& a, const Tensor& b) { check_operands(op, {&a, &b}); }
void check_same_backend(const char* op, const Tensor& a, const Tensor& b);
void check_rank(const char* op, const char* what, const Tensor& x, std::int64_t rank, const char* expected);
// `axis` as a number in [0, rank).
std::int64_t check_axis(const char* op, const Shape& shape, std::int64_t axis);

// The int64 form of `ids`, which must be int32 or int64. A result that has to outlive changes by the caller is made
// with `own`: it shares no memory with `ids`. `what` is the word for one of them in the texts: "id", "label".
Tensor int64_ids(const char* op, const char* what, const Tensor& ids, bool own);
// Range of `ids`, whose int64 form is `wide`. Computed once for each version of `ids` where the host cannot see them.
IdRange id_range(const Tensor& ids, const Tensor& wide);
// int64_ids after a check that every id lies in [0, rows).
Tensor check_ids(const char* op, const char* what, const Tensor& ids, std::int64_t rows, bool own);
[[noreturn]] void throw_bad_id(const char* op, const char* what, const Tensor& ids, std::int64_t rows,
                               std::optional<std::int64_t> ignore = {});
void check_padding(const char* op, std::optional<std::int64_t> padding_idx, std::int64_t rows);

// Throws ValueError unless p is in [0, 1].
void check_probability(const char* op, double p);
// One drawing for `count` elements from the default generator, which moves on by 16 ceil(count / 128) blocks. Draws
// nothing, and is the identity, when training is false or p is 0.
Dropout draw_dropout(double p, bool training, std::int64_t count);

// `shape` split at one axis.
inline Axis axis_of(const Shape& shape, std::int64_t axis) {
  return {shape.product(0, axis), shape[axis], shape.product(axis + 1, shape.rank())};
}
// Element strides of a row-major tensor of this shape.
StridedView row_major(const Shape& shape);

// --- Not recorded ---

// The same memory under another shape of as many elements; x itself if it has that shape already.
Tensor view(const Tensor& x, const Shape& shape);
// x repeated to `shape`; x itself if it has that shape already.
Tensor expand(const Tensor& x, const Shape& shape);
// The adjoint of `expand`: sums over the axes that were repeated to get from `shape` to the shape of x. Neighbouring
// axes are summed as one, by the fixed tree, the outermost group first.
Tensor sum_to(const Tensor& x, const Shape& shape);
Tensor reduce(Reduce op, const Axis& axis, const Tensor& x, const Shape& shape);
Tensor unary(Unary op, const Tensor& x, double scalar = 0.0);
Tensor binary(Binary op, const Tensor& a, const Tensor& b);

}  // namespace wengert::detail
