#pragma once
/// Dropout.

#include "wengert/layers/module.hpp"

namespace wengert::layers {

/// In training, drops each element with probability p and multiplies the others by 1 / (1 - p). In evaluation it
/// returns its argument. See wengert::dropout. Source: Srivastava et al., JMLR 15, 2014.
class Dropout : public Module {
 public:
  /// Throws ValueError unless p is in [0, 1].
  explicit Dropout(double p = 0.5) { set_p(p); }
  double p() const { return p_; }
  void set_p(double p);

  Tensor forward(const Tensor& x) const;
  Tensor operator()(const Tensor& x) const { return forward(x); }

 private:
  double p_ = 0.0;
};

}  // namespace wengert::layers
