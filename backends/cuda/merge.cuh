#pragma once
// Rows of equal ids added up: (id, place) sorted by id, starts of the runs of equal ids found, and every run summed by
// the fixed tree, in the order of the places. Runs of more than one segment are cut into segments of 32 blocks,
// subtrees of their own, which are summed side by side and then joined.

#include <algorithm>
#include <bit>

#include "kernels.hpp"
#include "reduce.cuh"
#include "tree.cuh"
#include "vector.cuh"

namespace wengert::cuda::inline WENGERT_CUDA_BUILD {

/// Terms of a segment.
constexpr std::int64_t segment = 1024;
/// Items that a warp looks at while it looks for starts of runs.
constexpr std::int64_t warp_items = 128;

/// Keys to sort by: the ids, of which there are `period`, repeated; `num_rows` for those left out, so that they come
/// last.
static __global__ void merge_keys_kernel(const std::int64_t* ids, std::int64_t period, std::int64_t skip, bool has_skip,
                                         std::int64_t num_rows, std::int64_t* keys, std::int64_t* places,
                                         std::int64_t count) {
  for (std::int64_t i = first_thread(); i < count; i += grid_threads()) {
    const std::int64_t id = ids[period == count ? i : i % period];
    keys[i] = has_skip && id == skip ? num_rows : id;
    places[i] = i;
  }
}

/// Where the runs of equal keys begin, and where those end that count: place `count` counts as left out.
struct Edge {
  bool edge, head;
  __device__ Edge(const std::int64_t* keys, std::int64_t count, std::int64_t end_key, std::int64_t i)
      : edge(false), head(false) {
    if (i > count) return;
    const std::int64_t key = i < count ? keys[i] : end_key;
    edge = i == 0 || key != keys[i - 1];
    head = edge && key != end_key;
  }
};

/// heads (warps): how many runs begin in each warp's items.
static __global__ void count_heads_kernel(const std::int64_t* keys, std::int64_t count, std::int64_t end_key,
                                          std::int64_t* heads, std::int64_t warps) {
  for (std::int64_t w = first_warp(); w < warps; w += grid_warps()) {
    std::int64_t sum = 0;
    for (std::int64_t first = w * warp_items; first < (w + 1) * warp_items; first += warp_size)
      sum += __popc(__ballot_sync(whole_warp, Edge(keys, count, end_key, first + lane()).head));
    if (lane() == 0) heads[w] = sum;
  }
}

/// Sums of all that come before, in place: values (count + 1), the last the sum of all. One block, whose threads have
/// each with a stretch of its own.
static __global__ void __launch_bounds__(block_threads) sums_before_kernel(std::int64_t* values, std::int64_t count) {
  constexpr int threads = block_threads;
  const std::int64_t length = (count + threads - 1) / threads, begin = threadIdx.x * length;
  const std::int64_t end = begin + length < count ? begin + length : count;
  std::int64_t sum = 0;
  for (std::int64_t i = begin; i < end; ++i) sum += values[i];
  std::int64_t upto = sum;  // of this warp's threads up to this one
  for (int apart = 1; apart < warp_size; apart *= 2) {
    const std::int64_t before = __shfl_up_sync(whole_warp, upto, static_cast<unsigned>(apart));
    if (lane() >= apart) upto += before;
  }
  WENGERT_SHARED(std::int64_t, totals, block_warps);
  const unsigned warp = threadIdx.x / warp_size;
  if (lane() == warp_size - 1) totals[warp] = upto;
  __syncthreads();
  std::int64_t before = upto - sum;
  for (unsigned w = 0; w < warp; ++w) before += totals[w];
  for (std::int64_t i = begin; i < end; ++i) {
    const std::int64_t value = values[i];
    values[i] = before;
    before += value;
  }
  if (threadIdx.x == threads - 1) values[count] = before;
}

/// starts (runs + 1): the sorted place where each run begins, and where the last one ends.
static __global__ void write_starts_kernel(const std::int64_t* keys, std::int64_t count, std::int64_t end_key,
                                           const std::int64_t* heads, std::int64_t* starts, std::int64_t warps) {
  for (std::int64_t w = first_warp(); w < warps; w += grid_warps()) {
    std::int64_t run = heads[w];
    for (std::int64_t first = w * warp_items; first < (w + 1) * warp_items; first += warp_size) {
      const Edge at(keys, count, end_key, first + lane());
      const unsigned ballot = __ballot_sync(whole_warp, at.head), before = (1u << lane()) - 1u;
      if (at.edge) starts[run + __popc(ballot & before)] = first + lane();
      run += __popc(ballot);
    }
  }
}

/// The rows that are added up, as they lie: of width n * packs, with what dropout kept of them.
template <class T, int n>
__device__ Vec<T, n> masked_pack(const T* rows, const std::uint32_t* bits, T scale, std::int64_t e) {
  Vec<T, n> values = load<n>(rows + e);
  if (!bits) return values;
  const std::uint32_t word = __ldg(bits + e / 32) >> (e % 32);  // n divides 32
  WENGERT_UNROLL
  for (int k = 0; k < n; ++k) values.at[k] = ((word >> k) & 1u) != 0 ? values.at[k] * scale : T(0);
  return values;
}

/// n sums side by side.
template <class T, int n>
struct VecSum {
  __device__ static Vec<T, n> join(const Vec<T, n>& earlier, const Vec<T, n>& later) {
    Vec<T, n> sum;
    WENGERT_UNROLL
    for (int k = 0; k < n; ++k) sum.at[k] = earlier.at[k] + later.at[k];
    return sum;
  }
};

/// The tree over at most one segment of terms: the rows of `places` [0, count), at column pack `column`.
template <class T, int n>
__device__ Vec<T, n> sum_segment(const T* rows, const std::uint32_t* bits, T scale, const std::int64_t* places,
                                 std::int64_t count, std::int64_t width, std::int64_t column) {
  const auto row = [&](std::int64_t i) {
    return masked_pack<T, n>(rows, bits, scale, (__ldg(places + i) * width + column) * n);
  };
  if (count <= tree_block) {
    Vec<T, n> sum = row(0);
    for (std::int64_t i = 1; i < count; ++i) sum = VecSum<T, n>::join(sum, row(i));
    return sum;
  }
  Counter<Vec<T, n>, VecSum<T, n>, 5> counter;
  for (std::int64_t begin = 0; begin < count; begin += tree_block) {
    const std::int64_t end = begin + tree_block < count ? begin + tree_block : count;
    Vec<T, n> sum = row(begin);
    for (std::int64_t i = begin + 1; i < end; ++i) sum = VecSum<T, n>::join(sum, row(i));
    counter.add(sum);
  }
  return counter.result();
}

/// out_ids (runs) and, for runs of at most one segment, out (runs, width): a thread for each pack of columns of each
/// run.
template <class T, int n>
__global__ void sum_runs_kernel(const T* rows, const std::uint32_t* bits, T scale, const std::int64_t* keys,
                                const std::int64_t* places, const std::int64_t* starts, std::int64_t runs,
                                std::int64_t width, std::int64_t* out_ids, T* out) {
  const std::int64_t threads_of_run = width > 0 ? width : 1;
  for (std::int64_t i = first_thread(); i < runs * threads_of_run; i += grid_threads()) {
    const std::int64_t run = i / threads_of_run, column = i % threads_of_run;
    const std::int64_t begin = __ldg(starts + run), count = __ldg(starts + run + 1) - begin;
    if (column == 0) out_ids[run] = keys[begin];
    if (width > 0 && count <= segment)
      store_streaming(out + i * n, sum_segment<T, n>(rows, bits, scale, places + begin, count, width, column));
  }
}

// Long runs. Cut the sorted places into stretches as long as a segment: in each begins at most one segment of the run
// that comes in from before (slot 2 i) and at most one, the first, of a long run that begins there (slot 2 i + 1).

struct Slot {
  std::int64_t begin = 0, count = 0;  // sorted places of the segment; none: there is no such segment
  std::int64_t run = 0, run_begin = 0, run_count = 0;

  __device__ Slot(const std::int64_t* starts, std::int64_t runs, std::int64_t slot) {
    const std::int64_t total = starts[runs], stretch = slot / 2 * segment;
    if (stretch >= total) return;
    const std::int64_t beyond = stretch + segment < total ? stretch + segment : total;
    const std::int64_t incoming = run_of(starts, runs, stretch);
    run = slot % 2 == 0 ? incoming : run_of(starts, runs, beyond - 1);
    run_begin = starts[run], run_count = starts[run + 1] - run_begin;
    if (run_count <= segment || (slot % 2 == 1 && run == incoming)) return;
    begin = run_begin + (stretch > run_begin ? (stretch - run_begin + segment - 1) / segment * segment : 0);
    const std::int64_t end = run_begin + run_count;
    if (begin >= beyond || begin >= end) return;
    count = begin + segment < end ? segment : end - begin;
  }

 private:
  // The run that holds a sorted place.
  __device__ static std::int64_t run_of(const std::int64_t* starts, std::int64_t runs, std::int64_t place) {
    std::int64_t low = 0, high = runs;  // starts[low] <= place < starts[high]
    while (high - low > 1) {
      const std::int64_t middle = (low + high) / 2;
      if (starts[middle] <= place)
        low = middle;
      else
        high = middle;
    }
    return low;
  }
};

/// sums (slots, width): a thread for each pack of columns of each slot.
template <class T, int n>
__global__ void sum_segments_kernel(const T* rows, const std::uint32_t* bits, T scale, const std::int64_t* places,
                                    const std::int64_t* starts, std::int64_t runs, std::int64_t width,
                                    std::int64_t slots, T* sums) {
  for (std::int64_t i = first_thread(); i < slots * width; i += grid_threads()) {
    const Slot slot(starts, runs, i / width);
    if (slot.count > 0)
      store(sums + i * n, sum_segment<T, n>(rows, bits, scale, places + slot.begin, slot.count, width, i % width));
  }
}

/// out (runs, width) of long runs: the thread that has a run's first segment joins all of them.
template <class T, int n>
__global__ void join_segments_kernel(const T* sums, const std::int64_t* starts, std::int64_t runs, std::int64_t width,
                                     std::int64_t slots, T* out) {
  for (std::int64_t i = first_thread(); i < slots * width; i += grid_threads()) {
    const Slot slot(starts, runs, i / width);
    if (slot.count == 0 || slot.begin != slot.run_begin) continue;
    Counter<Vec<T, n>, VecSum<T, n>, 31> counter;
    for (std::int64_t at = slot.begin; at < slot.run_begin + slot.run_count; at += segment) {
      const bool begins_inside = at == slot.run_begin && at % segment != 0;
      counter.add(load<n>(sums + ((2 * (at / segment) + begins_inside) * width + i % width) * n));
    }
    store_streaming(out + (slot.run * width + i % width) * n, counter.result());
  }
}

/// See RowGrad::merge, for rows (count, d) of which `bits`, if not null, says what is kept. ids: `period` of them,
/// repeated until there are `count`. Waits once, for the number of runs.
template <class T>
RowGrad merge(const Tensor& ids, std::int64_t count, const Tensor& like, const T* rows, const std::uint32_t* bits,
              T scale, std::int64_t d, std::int64_t num_rows, std::optional<std::int64_t> skip) {
  const auto nothing = [&] { return RowGrad{empty({0}, DType::int64, like.backend()), empty({0, d}, like), num_rows}; };
  if (count == 0) return nothing();
  const std::int64_t warps = count / warp_items + 1;  // one item more than there are ids: the end
  const Scratch<std::int64_t> keys(count), places(count), sorted_keys(count), sorted_places(count), starts(count + 1),
      heads(warps + 1);
  launch({"merge_keys", blocks_of_threads(count)}, merge_keys_kernel, read<std::int64_t>(ids), ids.numel(),
         skip.value_or(0), skip.has_value(), num_rows, keys.data(), places.data(), count);
  const int end_bit = std::max(1, static_cast<int>(std::bit_width(static_cast<std::uint64_t>(num_rows))));
  sort_pairs(keys.data(), places.data(), count, end_bit, sorted_keys.data(), sorted_places.data());
  launch({"count_heads", blocks_of_warps(warps)}, count_heads_kernel, sorted_keys.data(), count, num_rows, heads.data(),
         warps);
  launch({"sums_before", 1}, sums_before_kernel, heads.data(), warps);
  launch({"write_starts", blocks_of_warps(warps)}, write_starts_kernel, sorted_keys.data(), count, num_rows,
         heads.data(), starts.data(), warps);
  std::int64_t runs = 0;
  memory().download(&runs, heads.data() + warps, sizeof runs);
  if (runs == 0) return nothing();

  RowGrad merged{empty({runs}, DType::int64, like.backend()), empty({runs, d}, like), num_rows};
  T* out = write<T>(merged.rows);
  with_width<T>(d % pack<T> == 0 && aligned(rows, out), [&](auto n) {
    const std::int64_t width = d / n;
    launch({"sum_runs", blocks_of_threads(runs * std::max<std::int64_t>(width, 1))}, sum_runs_kernel<T, n()>, rows,
           bits, scale, sorted_keys.data(), sorted_places.data(), starts.data(), runs, width,
           write<std::int64_t>(merged.ids), out);
    if (count <= segment || width == 0) return;
    const std::int64_t slots = 2 * ((count + segment - 1) / segment);
    const Scratch<T> sums(slots * d);
    launch({"sum_segments", blocks_of_threads(slots * width)}, sum_segments_kernel<T, n()>, rows, bits, scale,
           sorted_places.data(), starts.data(), runs, width, slots, sums.data());
    launch({"join_segments", blocks_of_threads(slots * width)}, join_segments_kernel<T, n()>, sums.data(),
           starts.data(), runs, width, slots, out);
  });
  return merged;
}

template <class T>
RowGrad Kernels<T>::merge_rows(const Tensor& ids, const Tensor& rows, std::int64_t num_rows,
                               std::optional<std::int64_t> skip) {
  return merge<T>(ids, ids.numel(), rows, read<T>(rows), nullptr, T(1), rows.size(1), num_rows, skip);
}

}  // namespace wengert::cuda::inline WENGERT_CUDA_BUILD
