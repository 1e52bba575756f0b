#include "sort.hpp"

#include <algorithm>
#include <bit>

#include "wengert/kernels.hpp"

namespace wengert::xsimd_backend {

namespace {

constexpr int largest_digit_bits = 11;
constexpr std::int64_t few = 64;  // shorter lists are compared, not counted

// An id and its place in the batch, in one word where both fit: half the memory to move about.
struct Wide {
  std::int64_t id = 0, place = 0;
  Wide(std::int64_t i, std::int64_t p) : id(i), place(p) {}
  bool operator<(const Wide& other) const { return id != other.id ? id < other.id : place < other.place; }
};
struct Narrow {
  std::uint64_t both = 0;
  Narrow(std::int64_t i, std::int64_t p) : both(static_cast<std::uint64_t>(i) << 32 | static_cast<std::uint64_t>(p)) {}
  bool operator<(const Narrow& other) const { return both < other.both; }
};
std::uint64_t id_of(const Wide& entry) { return static_cast<std::uint64_t>(entry.id); }
std::uint64_t id_of(const Narrow& entry) { return entry.both >> 32; }
std::int64_t place_of(const Wide& entry) { return entry.place; }
std::int64_t place_of(const Narrow& entry) { return static_cast<std::int64_t>(entry.both & 0xFFFFFFFFU); }

// Sorts m entries of ids below 2^bits, least significant digit first, which keeps equal ids in the order of their
// places. `scratch` has room for as many. Returns whichever of the two holds the result.
template <class Entry>
Entry* sort_entries(Entry* entries, Entry* scratch, std::int64_t m, int bits) {
  if (m <= few) {
    std::sort(entries, entries + m);
    return entries;
  }
  const int passes = (bits + largest_digit_bits - 1) / largest_digit_bits;
  const int digit_bits = passes == 0 ? 0 : (bits + passes - 1) / passes;
  const std::size_t digits = std::size_t{1} << digit_bits;
  for (int pass = 0; pass < passes; ++pass) {
    std::int64_t ends[(1 << largest_digit_bits) + 1];
    std::fill_n(ends, digits + 1, 0);
    const auto digit = [shift = pass * digit_bits, digits](const Entry& entry) {
      return (id_of(entry) >> shift) & (digits - 1);
    };
    for (std::int64_t i = 0; i < m; ++i) ++ends[digit(entries[i]) + 1];
    for (std::size_t d = 0; d < digits; ++d) ends[d + 1] += ends[d];
    for (std::int64_t i = 0; i < m; ++i) scratch[ends[digit(entries[i])]++] = entries[i];
    std::swap(entries, scratch);
  }
  return entries;
}

template <class Entry>
Occurrences find(const Tensor& ids, int bits, std::optional<std::int64_t> skip) {
  const std::int64_t m = ids.numel();
  const auto* id = read<std::int64_t>(ids);
  Tensor workspace = empty({2 * m * static_cast<std::int64_t>(sizeof(Entry) / 8)}, ids), starts = empty({m + 1}, ids);
  auto* entries = reinterpret_cast<Entry*>(write<std::int64_t>(workspace));
  std::int64_t kept = 0;
  for (std::int64_t i = 0; i < m; ++i)
    if (!skip || id[i] != *skip) entries[kept++] = Entry(id[i], i);
  const Entry* sorted = sort_entries(entries, entries + m, kept, bits);

  Occurrences found;
  found.order = empty({kept}, ids);
  auto *order = write<std::int64_t>(found.order), *start = write<std::int64_t>(starts);
  for (std::int64_t i = 0; i < kept; ++i) {  // without branches: no processor can guess where an id ends
    order[i] = place_of(sorted[i]);
    start[found.count] = i;  // stays if an id begins here
    found.count += i == 0 || id_of(sorted[i]) != id_of(sorted[i - 1]) ? 1 : 0;
  }
  start[found.count] = kept;
  found.ids = empty({found.count}, ids);
  auto* unique = write<std::int64_t>(found.ids);
  for (std::int64_t i = 0; i < found.count; ++i) unique[i] = static_cast<std::int64_t>(id_of(sorted[start[i]]));
  found.starts = starts;
  return found;
}

}  // namespace

Occurrences find_occurrences(const Tensor& ids, std::int64_t num_rows, std::optional<std::int64_t> skip) {
  const int bits = std::bit_width(static_cast<std::uint64_t>(std::max<std::int64_t>(num_rows - 1, 0)));
  const bool narrow = bits <= 32 && ids.numel() <= std::int64_t{1} << 32;
  return narrow ? find<Narrow>(ids, bits, skip) : find<Wide>(ids, bits, skip);
}

Repeats find_repeats(const Occurrences& found, std::int64_t m) {
  Repeats repeats{0, empty({m}, found.ids), empty({found.count}, found.ids)};
  auto *slot = write<std::int64_t>(repeats.slots), *repeated = write<std::int64_t>(repeats.repeated);
  const auto *order = read<std::int64_t>(found.order), *start = read<std::int64_t>(found.starts);
  std::fill_n(slot, m, -1);
  for (std::int64_t i = 0; i < found.count; ++i) {
    const bool once = start[i + 1] - start[i] == 1;
    slot[order[start[i]]] = once ? i : -1;
    repeated[repeats.count] = i;
    repeats.count += once ? 0 : 1;
  }
  return repeats;
}

}  // namespace wengert::xsimd_backend
