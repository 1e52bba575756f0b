#pragma once
/// Linear: an affine map of the last axis.

#include <cstdint>

#include "wengert/layers/module.hpp"

namespace wengert::layers {

/// y = x weight^T + bias, weight (out_features, in_features), bias (out_features).
class Linear : public Module {
 public:
  struct Options {
    std::int64_t in_features = required;  ///< 0 is a size
    std::int64_t out_features = required;
    bool bias = true;
    DType dtype = DType::float32;
  };

  /// Weight and bias start uniform in [-1 / sqrt(in_features), 1 / sqrt(in_features)], as PyTorch's do. Throws
  /// ValueError for a size that is missing or negative.
  explicit Linear(const Options& options);

  /// x (..., in_features) -> (..., out_features).
  Tensor forward(const Tensor& x) const;
  Tensor operator()(const Tensor& x) const { return forward(x); }

  Tensor weight;
  Tensor bias;  ///< undefined if there is none
};

}  // namespace wengert::layers
