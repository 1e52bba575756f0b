#pragma once
/// What tests of layers, optimisers and files share: values in and out of tensors, names.

#include <string>
#include <vector>

#include "wengert/named.hpp"
#include "wengert/tensor.hpp"

namespace wengert::testing {

using Values = std::vector<double>;
using Names = std::vector<std::string>;

inline Tensor make(const Values& values, const Shape& shape, DType dtype = DType::float32) {
  return tensor(values, shape).to(dtype);
}
inline Values values_of(const Tensor& tensor) { return tensor.to_vector<double>(); }
inline Names names_of(const NamedTensors& tensors) {
  Names names;
  for (const NamedTensor& entry : tensors) names.push_back(entry.name);
  return names;
}

}  // namespace wengert::testing
