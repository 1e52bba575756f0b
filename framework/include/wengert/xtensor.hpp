#pragma once
/// To and from xtensor's arrays. The one public header that includes xtensor: only those who include it need it.

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "wengert/detail/xtensor_headers.hpp"
#include "wengert/tensor.hpp"

namespace wengert {

namespace detail {
inline std::vector<std::size_t> xtensor_shape(const Shape& shape) { return {shape.begin(), shape.end()}; }
}  // namespace detail

/// A copy of the values, converted to T, wherever the tensor lives.
template <class T>
xt::xarray<T> to_xtensor(const Tensor& tensor) {
  const std::vector<T> values = tensor.to_vector<T>();
  xt::xarray<T> out = xt::xarray<T>::from_shape(detail::xtensor_shape(tensor.shape()));
  std::copy(values.begin(), values.end(), out.begin());
  return out;
}

/// The values in place, to be read as an xtensor expression. Valid while the tensor's memory lives: keep the tensor.
/// Throws DTypeError for another T than the tensor's, BackendError where the host cannot see the memory.
template <class T>
auto view(const Tensor& tensor) {
  const std::span<const T> values = tensor.data<T>();
  return xt::adapt(values.data(), values.size(), xt::no_ownership(), detail::xtensor_shape(tensor.shape()));
}

/// A tensor with the values of an xtensor array or expression of float, double, std::int32_t or std::int64_t.
/// Throws ShapeError for more than eight axes.
template <class Expression>
Tensor from_xtensor(const xt::xexpression<Expression>& expression, Backend& backend = current_backend()) {
  using T = typename Expression::value_type;
  // NOLINTNEXTLINE(performance-unnecessary-copy-initialization): an expression is evaluated here, only an array copied
  const xt::xarray<T, xt::layout_type::row_major> values = expression.derived_cast();
  std::vector<std::int64_t> extents(values.shape().begin(), values.shape().end());
  return tensor(std::span<const T>(values.data(), values.size()), Shape(std::span<const std::int64_t>(extents)),
                backend);
}

}  // namespace wengert
