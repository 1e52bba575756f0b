#pragma once
/// LayerNorm.

#include <cstdint>

#include "wengert/layers/module.hpp"

namespace wengert::layers {

/// Normalises the last axes to mean 0 and variance 1, then scales and shifts them; see wengert::layer_norm.
class LayerNorm : public Module {
 public:
  struct Options {
    Shape normalized_shape{};  ///< the last axes of the input, none of extent 0: {64}
    double eps = 1e-5;         ///< added to the variance
    bool elementwise_affine = true;
    bool bias = true;  ///< if affine
    DType dtype = DType::float32;
  };
  /// weight starts as ones, bias as zeros. Throws ValueError for a normalized_shape without elements or a negative eps.
  explicit LayerNorm(const Options& options);

  /// x (..., normalized_shape) -> the same shape.
  Tensor forward(const Tensor& x) const;
  Tensor operator()(const Tensor& x) const { return forward(x); }

  Tensor weight;  ///< normalized_shape; undefined if not affine
  Tensor bias;    ///< undefined if there is none

 private:
  Shape normalized_shape_;
  double eps_;
};

}  // namespace wengert::layers
