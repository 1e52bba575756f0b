#pragma once
/// What tests of single kernels share: tensors on the current backend, and its kernels.

#include <limits>
#include <vector>

#include "wengert/backend.hpp"
#include "wengert/kernels.hpp"
#include "wengert/tensor.hpp"

namespace wengert::testing {

template <class T>
Tensor upload(const std::vector<T>& values, const Shape& shape) {
  return tensor(values, shape, current_backend());
}
template <class T>
wengert::Kernels& kernels() {
  return current_backend().kernels(dtype_of<T>);
}
/// NaN everywhere, so that what a kernel leaves out shows.
template <class T>
Tensor unwritten(const Shape& shape) {
  return full(shape, std::numeric_limits<double>::quiet_NaN(), dtype_of<T>);
}

}  // namespace wengert::testing
