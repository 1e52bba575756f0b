#pragma once
// Sums and maxima by the fixed tree, and places of maxima. Long axes are cut into segments of 2^j blocks, which are
// subtrees of their own; what they give is reduced again, now with one term a block, until one is left.

#include <algorithm>

#include "kernels.hpp"
#include "tree.cuh"
#include "vector.cuh"

namespace wengert::cuda::inline WENGERT_CUDA_BUILD {

/// Blocks of one segment along a row: one a lane.
constexpr std::int64_t row_segment_blocks = warp_size;
/// Along a column, which one thread walks: few, so that there are many threads.
constexpr std::int64_t column_segment_blocks = 4;

/// Element i of x where it is kept, times scale, otherwise +0; x itself without bits.
template <class T>
__device__ T masked(const T* x, const std::uint32_t* bits, T scale, std::int64_t i) {
  if (!bits) return x[i];
  return ((bits[i / 32] >> (i % 32)) & 1u) != 0 ? x[i] * scale : T(0);
}

/// A term: the value as it is or, for sums of squares, its square in the wider type.
template <class Out, bool squares, class T>
__device__ Out term(T value) {
  if constexpr (squares)
    return static_cast<Out>(value) * static_cast<Out>(value);
  else
    return value;
}

/// out (rows, segments): a warp for each segment of x (rows, n); `block` terms make a block.
template <class T, class Out, class Op, bool squares>
__global__ void reduce_rows_kernel(const T* x, std::int64_t rows, std::int64_t n, std::int64_t block,
                                   std::int64_t segments, Out* out) {
  for (std::int64_t w = first_warp(); w < rows * segments; w += grid_warps()) {
    const std::int64_t first = w % segments * row_segment_blocks * block;
    const T* terms = x + w / segments * n + first;
    const std::int64_t count = n - first, blocks = (count + block - 1) / block;
    const std::int64_t begin = lane() * block, end = begin + block < count ? begin + block : count;
    Out sum = Out(0);
    if (begin < end) sum = term<Out, squares>(terms[begin]);
    for (std::int64_t i = begin + 1; i < end; ++i) sum = Op::join(sum, term<Out, squares>(terms[i]));
    sum = join_lanes<Op>(sum, blocks);
    if (lane() == 0) out[w] = sum;
  }
}

/// out (outer, segments, inner): a thread for each column of each segment of x (outer, n, inner).
template <class T, class Op>
__global__ void reduce_columns_kernel(const T* x, const std::uint32_t* bits, T scale, Axis axis, std::int64_t block,
                                      std::int64_t segment_blocks, std::int64_t segments, T* out) {
  const std::int64_t count = axis.outer * segments * axis.inner;
  for (std::int64_t e = first_thread(); e < count; e += grid_threads()) {
    const std::int64_t column = e % axis.inner, place = e / axis.inner, segment = place % segments;
    const std::int64_t start = place / segments * axis.n * axis.inner + column;
    const std::int64_t first = segment * segment_blocks * block, beyond = first + segment_blocks * block;
    const std::int64_t last = beyond < axis.n ? beyond : axis.n;
    Counter<T, Op, 5> counter;
    for (std::int64_t begin = first; begin < last; begin += block) {
      const std::int64_t end = begin + block < last ? begin + block : last;
      T sum = masked(x, bits, scale, start + begin * axis.inner);
      for (std::int64_t i = begin + 1; i < end; ++i)
        sum = Op::join(sum, masked(x, bits, scale, start + i * axis.inner));
      counter.add(sum);
    }
    out[e] = counter.result();
  }
}

/// out (rows) from x (rows, n), n > 0.
template <class T, class Out, class Op, bool squares>
void reduce_rows(const T* x, std::int64_t rows, std::int64_t n, Out* out, std::int64_t block = tree_block) {
  const std::int64_t length = row_segment_blocks * block, segments = (n + length - 1) / length;
  const Scratch<Out> partial(segments > 1 ? rows * segments : 0);
  launch({"reduce_rows", blocks_of_warps(rows * segments)}, reduce_rows_kernel<T, Out, Op, squares>, x, rows, n, block,
         segments, segments > 1 ? partial.data() : out);
  if (segments > 1) reduce_rows<Out, Out, Op, false>(partial.data(), rows, segments, out, 1);
}

/// out (outer, inner) from x (outer, n, inner), n > 0, of which `bits`, if not null, says what is kept.
template <class T, class Op>
void reduce_columns(const T* x, const std::uint32_t* bits, T scale, const Axis& axis, T* out,
                    std::int64_t block = tree_block) {
  const std::int64_t segment_blocks = block > 1 ? column_segment_blocks : row_segment_blocks;
  const std::int64_t length = segment_blocks * block, segments = (axis.n + length - 1) / length;
  const std::int64_t results = axis.outer * segments * axis.inner;
  const Scratch<T> partial(segments > 1 ? results : 0);
  launch({"reduce_columns", blocks_of_threads(results)}, reduce_columns_kernel<T, Op>, x, bits, scale, axis, block,
         segment_blocks, segments, segments > 1 ? partial.data() : out);
  if (segments > 1) reduce_columns<T, Op>(partial.data(), nullptr, T(1), {axis.outer, segments, axis.inner}, out, 1);
}

template <class T>
void Kernels<T>::reduce(Reduce op, const Axis& axis, const Tensor& x, Tensor& out) {
  const T* from = read<T>(x);
  if (axis.n == 0) return fill(out, 0.0);
  T* to = write<T>(out);
  if (out.numel() == 0) return;
  const auto run = [&]<class Op>(Op) {
    if (axis.inner == 1 && axis.n > tree_block)
      reduce_rows<T, T, Op, false>(from, axis.outer, axis.n, to);
    else
      reduce_columns<T, Op>(from, nullptr, T(1), axis, to);
  };
  op == Reduce::sum ? run(Sum<T>()) : run(Max<T>());
}

template <class T>
void Kernels<T>::sum_squares(const Tensor& x, Tensor& out) {
  const T* from = read<T>(x);
  if (x.numel() == 0) return fill(out, 0.0);
  reduce_rows<T, double, Sum<double>, true>(from, 1, x.numel(), write<double>(out));
}

/// A warp for each element of out (outer, inner).
template <class T>
__global__ void argmax_kernel(const T* x, Axis axis, std::int64_t* out) {
  for (std::int64_t w = first_warp(); w < axis.outer * axis.inner; w += grid_warps()) {
    const T* column = x + w / axis.inner * axis.n * axis.inner + w % axis.inner;
    std::int64_t best = lane() < axis.n ? lane() : 0;
    for (std::int64_t i = best + warp_size; i < axis.n; i += warp_size)
      if (Max<T>::exceeds(column[i * axis.inner], column[best * axis.inner])) best = i;
    for (int apart = warp_size / 2; apart > 0; apart /= 2) {
      const std::int64_t other = __shfl_xor_sync(whole_warp, best, apart);
      const T mine = column[best * axis.inner], its = column[other * axis.inner];
      const bool equal = !Max<T>::exceeds(mine, its) && !Max<T>::exceeds(its, mine);
      if (Max<T>::exceeds(its, mine) || (equal && other < best)) best = other;
    }
    if (lane() == 0) out[w] = best;
  }
}

template <class T>
void Kernels<T>::argmax(const Axis& axis, const Tensor& x, Tensor& out) {
  launch({"argmax", blocks_of_warps(axis.outer * axis.inner)}, argmax_kernel<T>, read<T>(x), axis,
         write<std::int64_t>(out));
}

}  // namespace wengert::cuda::inline WENGERT_CUDA_BUILD
