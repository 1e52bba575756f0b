#include "sort.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "wengert/kernels.hpp"

namespace wengert::xsimd_backend {

namespace {

constexpr int digit_bits = 11;
constexpr std::size_t digits = std::size_t{1} << digit_bits;

struct Entry {
  std::int64_t id, place;
};

// Least significant digit first, which keeps equal ids in the order of their places. Sorts m entries of ids below 2^bits;
// `scratch` has room for as many. Returns whichever of the two holds the result.
Entry* radix_sort(Entry* entries, Entry* scratch, std::int64_t m, int bits) {
  for (int shift = 0; shift < bits; shift += digit_bits) {
    std::int64_t ends[digits + 1] = {};
    const auto digit = [shift](const Entry& entry) { return static_cast<std::size_t>(entry.id >> shift) % digits; };
    for (std::int64_t i = 0; i < m; ++i) ++ends[digit(entries[i]) + 1];
    for (std::size_t d = 0; d < digits; ++d) ends[d + 1] += ends[d];
    for (std::int64_t i = 0; i < m; ++i) scratch[ends[digit(entries[i])]++] = entries[i];
    std::swap(entries, scratch);
  }
  return entries;
}

}  // namespace

Occurrences find_occurrences(const Tensor& ids, std::int64_t num_rows, std::optional<std::int64_t> skip) {
  const std::int64_t m = ids.numel();
  const auto* id = read<std::int64_t>(ids);
  Tensor workspace = empty({4 * m}, ids), starts = empty({m + 1}, ids);
  auto* entries = reinterpret_cast<Entry*>(write<std::int64_t>(workspace));
  std::int64_t kept = 0;
  for (std::int64_t i = 0; i < m; ++i)
    if (!skip || id[i] != *skip) entries[kept++] = {id[i], i};
  Entry* const sorted = radix_sort(entries, entries + m, kept, std::bit_width(static_cast<std::uint64_t>(std::max<std::int64_t>(num_rows - 1, 0))));

  Occurrences found;
  found.order = empty({kept}, ids);
  auto* order = write<std::int64_t>(found.order);
  auto* start = write<std::int64_t>(starts);
  for (std::int64_t i = 0; i < kept; ++i) {
    order[i] = sorted[i].place;
    if (i == 0 || sorted[i].id != sorted[i - 1].id) start[found.count++] = i;
  }
  start[found.count] = kept;
  found.ids = empty({found.count}, ids);
  auto* unique = write<std::int64_t>(found.ids);
  for (std::int64_t i = 0; i < found.count; ++i) unique[i] = sorted[start[i]].id;
  found.starts = starts;
  return found;
}

}  // namespace wengert::xsimd_backend
