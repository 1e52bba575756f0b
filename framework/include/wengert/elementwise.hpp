#pragma once
/// The element-wise functions that kernels compute. In a header of its own that includes nothing of Wengert, so that a
/// file compiled for one processor only can include it.

#include <cstdint>

namespace wengert {

enum class Unary : std::uint8_t {
  neg,
  square,
  sqrt,
  exp,
  log,
  tanh,
  relu,
  gelu,         ///< x * Phi(x), Phi the normal distribution, by erf; -inf gives 0
  gelu_tanh,    ///< x * (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2; -inf gives 0
  add_scalar,   ///< x + s
  mul_scalar,   ///< x * s
  div_scalar,   ///< x / s
  rsub_scalar,  ///< s - x
  rdiv_scalar,  ///< s / x
  clamp,        ///< -s below -s, s above s, else x: NaN stays
};

enum class Binary : std::uint8_t {
  add,
  sub,
  mul,
  div,
  equal,           ///< 1 where a == b, else 0
  square_grad,     ///< a * (2 b):         a upstream, b input
  sqrt_grad,       ///< a / (2 b):         a upstream, b output
  tanh_grad,       ///< a * (1 - b * b):   a upstream, b output
  relu_grad,       ///< b <= 0 ? 0 : a:    a upstream, b output
  gelu_grad,       ///< a * gelu'(b):      a upstream, b input
  gelu_tanh_grad,  ///< a * gelu_tanh'(b): a upstream, b input
};

}  // namespace wengert
