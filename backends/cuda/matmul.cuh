#pragma once
// Matrix products: the machine's own.

#include "elementwise.cuh"
#include "kernels.hpp"

namespace wengert::cuda::inline WENGERT_CUDA_BUILD {

template <class T>
void Kernels<T>::matmul(const Matmul& shape, const Tensor& a, const Tensor& b, Tensor& out) {
  if (out.numel() == 0) return;
  if (shape.k == 0) {  // a sum of nothing
    if (shape.beta == 0.0) return fill(out, 0.0);
    return unary(Unary::mul_scalar, out, shape.beta, out);
  }
  Gemm<T> product;
  product.batch = shape.batch, product.m = shape.m, product.n = shape.n, product.k = shape.k;
  product.trans_a = shape.trans_a, product.trans_b = shape.trans_b;
  product.stride_a = shape.share_a ? 0 : shape.m * shape.k;
  product.stride_b = shape.share_b ? 0 : shape.k * shape.n;
  product.stride_out = shape.m * shape.n;
  product.alpha = static_cast<T>(shape.alpha), product.beta = static_cast<T>(shape.beta);
  product.a = read<T>(a), product.b = read<T>(b), product.out = write<T>(out);
  gemm(product);
}

}  // namespace wengert::cuda::inline WENGERT_CUDA_BUILD
