#include "wengert/backends/onednn.hpp"

#include "parallel.hpp"
#include "primitives.hpp"

namespace wengert::onednn {

namespace {

// Below this oneDNN's call costs more than the sum itself.
constexpr std::int64_t least_elements = 4096;

void multiply(const Matmul& shape, const Tensor& a, const Tensor& b, const Tensor& bias, Tensor& out) {
  Key key;
  key.kind = Key::Kind::product;
  key.trans_a = shape.trans_a, key.trans_b = shape.trans_b;
  key.share_a = shape.share_a, key.share_b = shape.share_b;
  key.bias = bias.defined();
  key.threads = xsimd_backend::threads_for(shape.batch * shape.m * shape.n * shape.k);
  key.alpha = static_cast<float>(shape.alpha), key.beta = static_cast<float>(shape.beta);
  key.extents = {shape.batch, shape.m, shape.n, shape.k};
  run(key, read<float>(a), read<float>(b), bias.defined() ? read<float>(bias) : nullptr, write<float>(out));
}

}  // namespace

void Kernels::binary(Binary op, const Tensor& a, const Tensor& b, Tensor& out) {
  // oneDNN has the sum of equal shapes and of a matrix and a row; a shape with leading ones counts as its last axis.
  const bool same = a.shape() == b.shape();
  const bool row = a.shape() == out.shape() && b.dim() == 1 && out.dim() > 1 && b.numel() == out.size(-1);
  if (op != Binary::add || out.numel() < least_elements || !(same || row))
    return xsimd_backend::Kernels::binary(op, a, b, out);
  Key key;
  key.threads = xsimd_backend::threads_for(12 * out.numel());
  const std::int64_t inner = row ? b.numel() : out.numel();
  key.extents = {out.numel() / inner, inner, row ? 1 : 0, 0};
  run(key, read<float>(a), read<float>(b), nullptr, write<float>(out));
}

void Kernels::matmul(const Matmul& shape, const Tensor& a, const Tensor& b, Tensor& out) {
  // oneDNN cannot repeat one product over a batch, nor sum over nothing.
  if (shape.k == 0 || out.numel() == 0 || (shape.share_a && shape.share_b))
    return xsimd_backend::Kernels::matmul(shape, a, b, out);
  multiply(shape, a, b, {}, out);
}

void Kernels::linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor& out) {
  if (x.size(1) == 0 || out.numel() == 0) return xsimd_backend::Kernels::linear(x, weight, bias, out);
  Matmul shape;
  shape.m = x.size(0), shape.n = weight.size(0), shape.k = x.size(1);
  shape.trans_b = true;
  multiply(shape, x, weight, bias, out);
}

Backend::Backend()
    : float_(static_cast<xsimd_backend::Kernels&>(xsimd_backend::Backend::kernels(DType::float32)).table) {}

wengert::Kernels& Backend::kernels(DType dtype) {
  if (dtype == DType::float64) return xsimd_backend::Backend::kernels(dtype);
  return float_;
}

wengert::Backend& instance() {
  static Backend& backend = *new Backend;
  return backend;
}

}  // namespace wengert::onednn
