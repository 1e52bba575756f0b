// Matrix products: the i-k-j loop, four k at a time, over panels of b that stay in the cache.

#include <algorithm>

#include "arrays.hpp"
#include "wengert/backends/reference.hpp"

namespace wengert::reference {

namespace {

constexpr std::int64_t panel_k = 64, panel_n = 512;  // 128 KB of float32: the second-level cache of any machine

// out (rows, n) += a (rows, k) b (k, n), whose rows lie `stride_...` apart: four k at a time, and for each four all the
// rows, so that the four rows of b come from the first-level cache.
template <std::int64_t rows, class T>
void add_product(const T* a, std::int64_t stride_a, const T* b, std::int64_t stride_b, std::int64_t k, std::int64_t n,
                 T* __restrict out, std::int64_t stride_out) {
  for (; k >= 4; k -= 4, a += 4, b += 4 * stride_b) {
    const T *b0 = b, *b1 = b0 + stride_b, *b2 = b1 + stride_b, *b3 = b2 + stride_b;
    for (std::int64_t i = 0; i < rows; ++i) {
      const T* row = a + i * stride_a;
      const T a0 = row[0], a1 = row[1], a2 = row[2], a3 = row[3];
      T* __restrict to = out + i * stride_out;
      for (std::int64_t j = 0; j < n; ++j) to[j] = to[j] + a0 * b0[j] + a1 * b1[j] + a2 * b2[j] + a3 * b3[j];
    }
  }
  for (; k > 0; --k, ++a, b += stride_b)
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < n; ++j) out[i * stride_out + j] += a[i * stride_a] * b[j];
}

// to (rows, columns) = factor * the transpose of from (columns, rows), whose rows lie `stride` apart.
template <class T>
void pack_transposed(const T* from, std::int64_t stride, std::int64_t rows, std::int64_t columns, T factor, T* to) {
  constexpr std::int64_t tile = 16;
  for (std::int64_t i0 = 0; i0 < rows; i0 += tile)
    for (std::int64_t j0 = 0; j0 < columns; j0 += tile)
      for (std::int64_t i = i0; i < std::min(i0 + tile, rows); ++i)
        for (std::int64_t j = j0; j < std::min(j0 + tile, columns); ++j)
          to[i * columns + j] = factor * from[j * stride + i];
}

template <class T>
void pack_scaled(const T* from, std::int64_t stride, std::int64_t rows, std::int64_t columns, T factor, T* to) {
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) to[i * columns + j] = factor * from[i * stride + j];
}

template <class T>
void scale(T* out, std::int64_t count, T beta) {
  if (beta == T(0)) return std::fill_n(out, count, T(0)), void();  // not read: it may be NaN
  if (beta == T(1)) return;
  for (std::int64_t i = 0; i < count; ++i) out[i] *= beta;
}

// One product of the batch. `scratch_a` holds m * panel_k values, `scratch_b` panel_k * panel_n; null where not needed.
template <class T>
void multiply(const Matmul& s, const T* a, const T* b, T* out, T* scratch_a, T* scratch_b) {
  const T alpha = static_cast<T>(s.alpha);
  scale(out, s.m * s.n, static_cast<T>(s.beta));
  for (std::int64_t k0 = 0; k0 < s.k; k0 += panel_k) {
    const std::int64_t k = std::min(panel_k, s.k - k0);
    const T* rows = a + k0;
    std::int64_t row_stride = s.k;
    if (scratch_a) {
      if (s.trans_a)
        pack_transposed(a + k0 * s.m, s.m, s.m, k, alpha, scratch_a);
      else
        pack_scaled(a + k0, s.k, s.m, k, alpha, scratch_a);
      rows = scratch_a;
      row_stride = k;
    }
    for (std::int64_t n0 = 0; n0 < s.n; n0 += panel_n) {
      const std::int64_t n = std::min(panel_n, s.n - n0);
      const T* panel = b + k0 * s.n + n0;
      std::int64_t panel_stride = s.n;
      if (scratch_b) {
        pack_transposed(b + n0 * s.k + k0, s.k, k, n, T(1), scratch_b);
        panel = scratch_b;
        panel_stride = n;
      }
      T* to = out + n0;
      std::int64_t i = 0;
      for (; i + 4 <= s.m; i += 4)
        add_product<4>(rows + i * row_stride, row_stride, panel, panel_stride, k, n, to + i * s.n, s.n);
      for (; i < s.m; ++i)
        add_product<1>(rows + i * row_stride, row_stride, panel, panel_stride, k, n, to + i * s.n, s.n);
    }
  }
}

}  // namespace

template <class T>
void Kernels<T>::matmul(const Matmul& shape, const Tensor& a, const Tensor& b, Tensor& out) {
  const T* left = read<T>(a);
  const T* right = read<T>(b);
  T* to = write<T>(out);
  const bool pack_a = shape.trans_a || shape.alpha != 1.0;
  const Workspace<T> scratch_a(pack_a ? shape.m * std::min(panel_k, shape.k) : 0);
  const Workspace<T> scratch_b(shape.trans_b ? std::min(panel_k, shape.k) * std::min(panel_n, shape.n) : 0);
  for (std::int64_t i = 0; i < shape.batch; ++i) {
    multiply(shape, left, right, to, scratch_a.data(), scratch_b.data());
    if (!shape.share_a) left += shape.m * shape.k;
    if (!shape.share_b) right += shape.k * shape.n;
    to += shape.m * shape.n;
  }
}

#define WENGERT_INSTANTIATE(T) template void Kernels<T>::matmul(const Matmul&, const Tensor&, const Tensor&, Tensor&);
WENGERT_INSTANTIATE(float)
WENGERT_INSTANTIATE(double)
#undef WENGERT_INSTANTIATE

}  // namespace wengert::reference
