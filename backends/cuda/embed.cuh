#pragma once
// Token rows + position rows, with dropout, in one pass forward and without a pass of its own backward.

#include "dropout.cuh"
#include "kernels.hpp"
#include "merge.cuh"
#include "reduce.cuh"
#include "vector.cuh"

namespace wengert::cuda::inline WENGERT_CUDA_BUILD {

/// out (count / d, d) = dropout(tokens[ids] + positions[place]): row r takes the position place_ids[r % period], or
/// start + r % period without place_ids. A warp has `chunk` elements at a time, eight for each lane; loads do not wait
/// for the generator, nor for each other. I: a type that holds indices of packs.
template <class T, int n, class I, bool drop>
__global__ void __launch_bounds__(block_threads)
    embed_kernel(const T* tokens, const T* positions, const std::int64_t* ids, const std::int64_t* place_ids,
                 std::int64_t period, std::int64_t start, std::int64_t d, std::int64_t count, Draw draw, T scale,
                 std::int64_t groups, std::uint16_t* mask, T* out) {
  constexpr int packs = chunk_share / n;
  const std::int64_t chunks = (count + chunk - 1) / chunk;
  const I width = static_cast<I>(d / n);
  for (std::int64_t index = first_warp(); index < chunks; index += grid_warps()) {
    const std::int64_t first = chunk * index + n * lane();
    Vec<T, n> token[packs] = {}, place[packs] = {};
    WENGERT_UNROLL
    for (int k = 0; k < packs; ++k) {
      const std::int64_t e = first + n * warp_size * k;
      if (e >= count) continue;
      const I i = static_cast<I>(e / n), row = i / width, column = (i % width) * n;
      const I beat = row % static_cast<I>(period);
      const std::int64_t at = place_ids ? __ldg(place_ids + beat) : start + static_cast<std::int64_t>(beat);
      token[k] = load<n>(tokens + __ldg(ids + row) * d + column);
      place[k] = load<n>(positions + at * d + column);
    }
    WENGERT_UNROLL
    for (int k = 0; k < packs; ++k) WENGERT_UNROLL
    for (int j = 0; j < n; ++j) token[k].at[j] = token[k].at[j] + place[k].at[j];
    if constexpr (drop) {
      const Kept kept(draw, index);
      kept.write(mask, index, groups);
      WENGERT_UNROLL
      for (int k = 0; k < packs; ++k) token[k] = select(token[k], kept.pack_bits<n>(k), scale);
    }
    WENGERT_UNROLL
    for (int k = 0; k < packs; ++k)
      if (const std::int64_t e = first + n * warp_size * k; e < count) store_streaming(out + e, token[k]);
  }
}

template <class T>
void Kernels<T>::embed_dropout(const Tensor& tokens, const Tensor& positions, const Tensor& ids, const Positions& place,
                               const Dropout& dropout, Tensor& out, Saved& saved) {
  if (dropout.p == 1.0) return fill(out, 0.0);
  const std::int64_t d = tokens.size(1), count = out.numel();
  const T *token_rows = read<T>(tokens), *position_rows = read<T>(positions);
  const auto* place_ids = place.ids.defined() ? read<std::int64_t>(place.ids) : nullptr;
  const std::int64_t period = place.ids.defined() ? place.ids.numel() : ids.size(-1);
  Tensor bits;
  if (!dropout.identity()) bits = empty_mask(count, out);
  T* to = write<T>(out);
  const auto run = [&](auto n, auto index, auto drop) {
    launch({"embed_dropout", blocks_of_warps((count + chunk - 1) / chunk)},
           embed_kernel<T, n(), decltype(index), drop()>, token_rows, position_rows, read<std::int64_t>(ids), place_ids,
           period, place.start, d, count, Draw(dropout), static_cast<T>(dropout.scale()), mask_groups(count),
           drop() ? write_mask(bits) : nullptr, to);
  };
  with_width<T>(d % pack<T> == 0 && aligned(token_rows, position_rows, to), [&](auto n) {
    with_index(count, [&](auto index) {
      if (dropout.identity())
        run(n, index, std::false_type());
      else
        run(n, index, std::true_type());
    });
  });
  if (bits.defined()) saved.push(bits);
}

template <class T>
void Kernels<T>::embed_dropout_backward(const Tensor& grad, const Tensor& ids, const Positions& place,
                                        const Dropout& dropout, const Saved& saved, std::int64_t token_rows,
                                        std::int64_t position_rows, std::optional<std::int64_t> skip,
                                        RowGrad* token_grad, RowGrad* position_grad) {
  Tensor upstream = grad;
  if (dropout.p == 1.0) fill(upstream = empty(grad.shape(), grad), 0.0);
  const std::int64_t length = ids.size(-1), d = grad.size(-1), count = ids.numel();
  const T* rows = read<T>(upstream);
  const std::uint32_t* bits = saved.size() > 0 ? read_mask(saved[0]) : nullptr;
  const T scale = static_cast<T>(dropout.scale());
  if (token_grad) *token_grad = merge<T>(ids, count, grad, rows, bits, scale, d, token_rows, skip);
  if (!position_grad) return;
  if (place.ids.defined()) {
    *position_grad = merge<T>(place.ids, count, grad, rows, bits, scale, d, position_rows, {});
    return;
  }
  *position_grad = {empty({length}, ids), empty({length, d}, grad), position_rows};
  iota(position_grad->ids, place.start);
  const std::int64_t batch = length == 0 ? 0 : count / length;
  if (batch == 0) return fill(position_grad->rows, 0.0);
  reduce_columns<T, Sum<T>>(rows, bits, scale, {1, batch, length * d}, write<T>(position_grad->rows));
}

}  // namespace wengert::cuda::inline WENGERT_CUDA_BUILD
