#pragma once
// Rows of tables: gather and add; ranges of ids.

#include <algorithm>

#include "kernels.hpp"
#include "vector.cuh"

namespace wengert::cuda::inline WENGERT_CUDA_BUILD {

/// One thread moves n elements of a row; `width` is the row's width in such packs.
template <class T, int n, class I>
__global__ void gather_kernel(const T* table, const std::int64_t* ids, std::int64_t width, T* out, std::int64_t packs) {
  for (std::int64_t i = first_thread(); i < packs; i += grid_threads()) {
    const I row = static_cast<I>(i) / static_cast<I>(width), column = static_cast<I>(i) % static_cast<I>(width);
    store_streaming(out + i * n, load<n>(table + (__ldg(ids + row) * width + column) * n));
  }
}

template <class T, int n, class I>
__global__ void add_rows_kernel(const std::int64_t* ids, const T* rows, std::int64_t width, T* dense,
                                std::int64_t packs) {
  for (std::int64_t i = first_thread(); i < packs; i += grid_threads()) {
    const I row = static_cast<I>(i) / static_cast<I>(width), column = static_cast<I>(i) % static_cast<I>(width);
    T* const to = dense + (__ldg(ids + row) * width + column) * n;
    const Vec<T, n> added = load<n>(rows + i * n);
    Vec<T, n> values = load_mutable<n>(to);
    WENGERT_UNROLL
    for (int k = 0; k < n; ++k) values.at[k] = values.at[k] + added.at[k];
    store(to, values);
  }
}

template <class T>
void Kernels<T>::gather_rows(const Tensor& table, const Tensor& ids, Tensor& out) {
  const std::int64_t d = table.size(1);
  const T* from = read<T>(table);
  T* to = write<T>(out);
  with_width<T>(d % pack<T> == 0 && aligned(from, to), [&](auto n) {
    const std::int64_t packs = out.numel() / n;
    with_index(packs, [&](auto index) {
      launch({"gather_rows", blocks_of_threads(packs)}, gather_kernel<T, n(), decltype(index)>, from,
             read<std::int64_t>(ids), d / n, to, packs);
    });
  });
}

template <class T>
void Kernels<T>::add_rows(const RowGrad& rows, Tensor& dense) {
  const std::int64_t d = dense.size(1);
  const T* from = read<T>(rows.rows);
  T* to = write<T>(dense);
  with_width<T>(d % pack<T> == 0 && aligned(from, to), [&](auto n) {
    const std::int64_t packs = rows.rows.numel() / n;
    with_index(packs, [&](auto index) {
      launch({"add_rows", blocks_of_threads(packs)}, add_rows_kernel<T, n(), decltype(index)>,
             read<std::int64_t>(rows.ids), from, d / n, to, packs);
    });
  });
}

// --- Ranges: every block finds its own, and the host, which has to wait for them anyway, joins them. ---

constexpr std::int64_t most_ranges = 128;

template <class Id>
__global__ void __launch_bounds__(block_threads)
    id_range_kernel(const Id* ids, std::int64_t count, std::int64_t skip, bool has_skip, std::int64_t* ranges) {
  std::int64_t smallest = INT64_MAX, largest = INT64_MIN;
  for (std::int64_t i = first_thread(); i < count; i += grid_threads()) {
    const std::int64_t id = ids[i];
    if (has_skip && id == skip) continue;
    smallest = id < smallest ? id : smallest;
    largest = id > largest ? id : largest;
  }
  for (int apart = warp_size / 2; apart > 0; apart /= 2) {
    const std::int64_t low = __shfl_xor_sync(whole_warp, smallest, apart);
    const std::int64_t high = __shfl_xor_sync(whole_warp, largest, apart);
    smallest = low < smallest ? low : smallest;
    largest = high > largest ? high : largest;
  }
  WENGERT_SHARED(std::int64_t, lows, block_warps);
  WENGERT_SHARED(std::int64_t, highs, block_warps);
  if (lane() == 0) {
    lows[threadIdx.x / warp_size] = smallest;
    highs[threadIdx.x / warp_size] = largest;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int warp = 1; warp < block_warps; ++warp) {
    const std::int64_t low = lows[warp], high = highs[warp];
    smallest = low < smallest ? low : smallest;
    largest = high > largest ? high : largest;
  }
  ranges[2 * blockIdx.x] = smallest;
  ranges[2 * blockIdx.x + 1] = largest;
}

template <class T>
IdRange Kernels<T>::id_range(const Tensor& ids, std::optional<std::int64_t> skip) {
  const std::int64_t count = ids.numel(), blocks = std::min(blocks_of_threads(count), most_ranges);
  IdRange range;
  if (blocks == 0) return range;
  const Scratch<std::int64_t> ranges(2 * blocks);
  const auto find = [&](const auto* values) {
    launch({"id_range", blocks}, id_range_kernel<std::remove_cvref_t<decltype(*values)>>, values, count,
           skip.value_or(0), skip.has_value(), ranges.data());
  };
  if (ids.dtype() == DType::int32)
    find(read<std::int32_t>(ids));
  else
    find(read<std::int64_t>(ids));
  std::int64_t found[2 * most_ranges];
  memory().download(found, ranges.data(), static_cast<std::size_t>(2 * blocks) * sizeof(std::int64_t));
  for (std::int64_t i = 0; i < blocks; ++i) {
    range.smallest = std::min(range.smallest, found[2 * i]);
    range.largest = std::max(range.largest, found[2 * i + 1]);
  }
  return range;
}

}  // namespace wengert::cuda::inline WENGERT_CUDA_BUILD
