// Rows of tables: gather, merge, add; ranges of ids.

#include <algorithm>
#include <cstring>

#include "arrays.hpp"
#include "tree.hpp"
#include "wengert/backends/reference.hpp"

namespace wengert::reference {

namespace {

struct Place {
  std::int64_t id, index;
};

// Sorts by id, places of equal ids in their order: radix sort by bytes, as many as the largest id has. Returns the
// sorted ones of the two arrays.
Place* sort_by_id(Place* places, Place* spare, std::int64_t count) {
  bool sorted = true;
  std::int64_t largest = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    sorted = sorted && (i == 0 || places[i - 1].id <= places[i].id);
    largest = std::max(largest, places[i].id);
  }
  if (sorted) return places;
  for (int shift = 0; shift < 64 && (largest >> shift) != 0; shift += 8) {
    std::int64_t starts[257] = {};
    for (std::int64_t i = 0; i < count; ++i) ++starts[((places[i].id >> shift) & 255) + 1];
    for (int digit = 1; digit < 256; ++digit) starts[digit] += starts[digit - 1];
    for (std::int64_t i = 0; i < count; ++i) spare[starts[(places[i].id >> shift) & 255]++] = places[i];
    std::swap(places, spare);
  }
  return places;
}

template <class Id>
IdRange range_of(const Id* ids, std::int64_t count, std::optional<std::int64_t> skip) {
  IdRange range;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t id = ids[i];
    if (skip && id == *skip) continue;
    range.smallest = std::min(range.smallest, id);
    range.largest = std::max(range.largest, id);
  }
  return range;
}

}  // namespace

template <class T>
void Kernels<T>::gather_rows(const Tensor& table, const Tensor& ids, Tensor& out) {
  const std::int64_t d = table.size(1), n = ids.numel();
  const T* rows = read<T>(table);
  const auto* row_ids = read<std::int64_t>(ids);
  T* to = write<T>(out);
  if (out.numel() == 0) return;
  for (std::int64_t i = 0; i < n; ++i)
    std::memcpy(to + i * d, rows + row_ids[i] * d, static_cast<std::size_t>(d) * sizeof(T));
}

template <class T>
RowGrad Kernels<T>::merge_rows(const Tensor& ids, const Tensor& rows, std::int64_t num_rows,
                               std::optional<std::int64_t> skip) {
  const std::int64_t m = ids.numel(), d = rows.size(1);
  const auto* row_ids = read<std::int64_t>(ids);
  const T* terms = read<T>(rows);

  const Workspace<Place> first(m), second(m);
  Place* places = first.data();
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < m; ++i)
    if (row_ids[i] != skip) places[count++] = {row_ids[i], i};
  places = sort_by_id(places, second.data(), count);
  std::int64_t unique = 0;
  for (std::int64_t i = 0; i < count; ++i) unique += i == 0 || places[i].id != places[i - 1].id;

  RowGrad merged{empty({unique}, DType::int64, rows.backend()), empty({unique, d}, rows), num_rows};
  auto* out_ids = write<std::int64_t>(merged.ids);
  T* out = write<T>(merged.rows);
  for (std::int64_t begin = 0, end = 0; begin < count; begin = end, out += d) {
    while (end < count && places[end].id == places[begin].id) ++end;
    *out_ids++ = places[begin].id;
    if (d > 0)
      tree_sum_rows(
          end - begin, d, [&](std::int64_t i) { return terms + places[begin + i].index * d; }, out);
  }
  return merged;
}

template <class T>
void Kernels<T>::add_rows(const RowGrad& rows, Tensor& dense) {
  const std::int64_t d = dense.size(1);
  const auto* ids = read<std::int64_t>(rows.ids);
  const T* from = read<T>(rows.rows);
  T* to = write<T>(dense);
  for (std::int64_t i = 0; i < rows.count(); ++i)
    for (std::int64_t c = 0; c < d; ++c) to[ids[i] * d + c] = to[ids[i] * d + c] + from[i * d + c];
}

template <class T>
IdRange Kernels<T>::id_range(const Tensor& ids, std::optional<std::int64_t> skip) {
  if (ids.dtype() == DType::int32) return range_of(read<std::int32_t>(ids), ids.numel(), skip);
  return range_of(read<std::int64_t>(ids), ids.numel(), skip);
}

#define WENGERT_INSTANTIATE(T)                                                                                      \
  template void Kernels<T>::gather_rows(const Tensor&, const Tensor&, Tensor&);                                     \
  template RowGrad Kernels<T>::merge_rows(const Tensor&, const Tensor&, std::int64_t, std::optional<std::int64_t>); \
  template void Kernels<T>::add_rows(const RowGrad&, Tensor&);                                                      \
  template IdRange Kernels<T>::id_range(const Tensor&, std::optional<std::int64_t>);
WENGERT_INSTANTIATE(float)
WENGERT_INSTANTIATE(double)
#undef WENGERT_INSTANTIATE

}  // namespace wengert::reference
