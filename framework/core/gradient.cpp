#include "wengert/gradient.hpp"

#include <fmt/format.h>

#include "tensor_impl.hpp"
#include "wengert/kernels.hpp"

namespace wengert {

using detail::TensorAccess;

namespace {

// One after the other along the first axis, for two tensors of one type and equal rows.
Tensor join(const Tensor& a, const Tensor& b) {
  Tensor out = empty(a.shape().with(0, a.size(0) + b.size(0)), a);
  StridedView contiguous;
  contiguous.strides[0] = 1;
  StridedView behind = contiguous;
  behind.offset = a.numel();
  out.kernels().copy_strided({a.numel()}, a, contiguous, out, contiguous);
  out.kernels().copy_strided({b.numel()}, b, contiguous, out, behind);
  return out;
}

// The value of `tensor` in memory that nobody else holds.
// NOLINTNEXTLINE(performance-unnecessary-value-param): taken over, so that a value given away is unique
Tensor owned(Tensor tensor) { return TensorAccess::unique(tensor) ? tensor : tensor.detach().clone(); }

// a + b, in place where a belongs to the caller alone.
Tensor sum(Tensor a, const Tensor& b) {
  if (TensorAccess::unique(a)) {
    a.kernels().binary(Binary::add, a, b, a);
    return a;
  }
  Tensor out = empty(a.shape(), a);
  out.kernels().binary(Binary::add, a, b, out);
  return out;
}

}  // namespace

namespace {

void check_fit(const char* op, const Tensor& ids, const Tensor& rows) {
  if (ids.dtype() != DType::int64)
    throw DTypeError(fmt::format("{}: row ids must be int64, not {}", op, name_of(ids.dtype())));
  if (ids.dim() != 1 || rows.dim() != 2 || ids.numel() != rows.size(0))
    throw ShapeError(fmt::format("{}: row ids of shape {} and rows of shape {} do not fit; (n) and (n, d) do", op,
                                 ids.shape().str(), rows.shape().str()));
  if (&ids.backend() != &rows.backend())
    throw BackendError(
        fmt::format("{}: row ids on {} and rows on {}", op, ids.backend().name(), rows.backend().name()));
}

void check_range(const char* op, const Tensor& ids, std::int64_t num_rows) {
  const IdRange range = ids.kernels().id_range(ids, {});
  if (!range.within(num_rows))
    throw IndexError(fmt::format("{}: row ids from {} to {} are not all inside [0, {})", op, range.smallest,
                                 range.largest, num_rows));
}

}  // namespace

void RowGrad::check(const char* op) const {
  check_fit(op, ids, rows);
  check_range(op, ids, num_rows);
  const auto values = ids.to_vector<std::int64_t>();
  for (std::size_t i = 1; i < values.size(); ++i)
    if (values[i] <= values[i - 1])
      throw IndexError(
          fmt::format("{}: row ids must ascend without repeats; {} follows {} (RowGrad::merge makes them so)", op,
                      values[i], values[i - 1]));
}

RowGrad RowGrad::merge(const Tensor& ids, const Tensor& rows, std::int64_t num_rows, std::optional<std::int64_t> skip) {
  check_fit("RowGrad::merge", ids, rows);
  check_range("RowGrad::merge", ids, num_rows);
  return rows.kernels().merge_rows(ids, rows, num_rows, skip);
}

Tensor RowGrad::dense() const {
  Tensor out = zeros(shape(), rows);
  out.kernels().add_rows(*this, out);
  return out;
}

RowGrad RowGrad::clone() const { return {ids.detach().clone(), rows.detach().clone(), num_rows}; }

void Gradient::add(Gradient other) {
  if (!defined()) {
    *this = std::move(other);
  } else if (is_dense() && other.is_dense()) {
    dense_ = sum(std::move(dense_), other.dense_);
  } else if (is_rows() && other.is_rows()) {
    // Two merged lists: each id occurs at most twice, earlier term first.
    rows_ = rows_.rows.kernels().merge_rows(join(rows_.ids, other.rows_.ids), join(rows_.rows, other.rows_.rows),
                                            rows_.num_rows, {});
  } else {
    const RowGrad& rows = is_rows() ? rows_ : other.rows_;
    Tensor dense = owned(std::move(is_rows() ? other.dense_ : dense_));
    dense.kernels().add_rows(rows, dense);
    *this = Gradient(std::move(dense));
  }
}

void Gradient::own() {
  if (is_dense()) {
    dense_ = owned(std::move(dense_));
  } else if (is_rows()) {
    rows_.ids = owned(std::move(rows_.ids));
    rows_.rows = owned(std::move(rows_.rows));
  }
}

}  // namespace wengert
