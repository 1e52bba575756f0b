#pragma once
// The fixed-tree sum of wengert/bits.hpp, arranged so that a processor can run several of its chains at once.

#include <algorithm>
#include <cstdint>

#include "wengert/bits.hpp"

namespace wengert::reference {

// Sum of term(0) .. term(n - 1). The blocks of the tree do not depend on each other: eight of them advance side by
// side.
template <class T, class Term>
T tree_sum(std::int64_t n, Term term) {
  constexpr std::int64_t block = 32, lanes = 8;
  bits::TreeSum<T> sum;
  std::int64_t i = 0;
  for (; i + block * lanes <= n; i += block * lanes) {
    T sums[lanes];
    for (std::int64_t lane = 0; lane < lanes; ++lane) sums[lane] = term(i + lane * block);
    for (std::int64_t j = 1; j < block; ++j)
      for (std::int64_t lane = 0; lane < lanes; ++lane) sums[lane] = sums[lane] + term(i + lane * block + j);
    for (const T complete : sums) sum.add_block(complete);
  }
  for (; i < n; ++i) sum.add(term(i));
  return sum.result();
}

// out (width) = sum of the rows row(0) .. row(n - 1), each a pointer to `width` values, column by column; n > 0.
template <class T, class Row>
void tree_sum_rows(std::int64_t n, std::int64_t width, Row row, T* out) {
  constexpr std::int64_t block = 32;
  const auto sum_block = [&](std::int64_t first, std::int64_t last, std::int64_t from, std::int64_t count, T* sums) {
    std::copy_n(row(first) + from, count, sums);
    for (std::int64_t i = first + 1; i < last; ++i) {
      const T* terms = row(i) + from;
      for (std::int64_t c = 0; c < count; ++c) sums[c] = sums[c] + terms[c];
    }
  };
  if (n <= block) return sum_block(0, n, 0, width, out);

  constexpr std::int64_t tile = 512 / sizeof(T);
  T levels[60][tile];  // levels[l]: sums of 2^l blocks, where bit l of the number of blocks so far is 1
  for (std::int64_t from = 0; from < width; from += tile) {
    const std::int64_t count = std::min(tile, width - from);
    T sums[tile];
    std::uint64_t blocks = 0;
    for (std::int64_t first = 0; first < n; first += block, ++blocks) {
      sum_block(first, std::min(first + block, n), from, count, sums);
      std::uint64_t level = 0;
      for (std::uint64_t before = blocks; before % 2 == 1; before /= 2, ++level)
        for (std::int64_t c = 0; c < count; ++c) sums[c] = levels[level][c] + sums[c];
      std::copy_n(sums, count, levels[level]);
    }
    // A last block of fewer than 32 rows has been carried like the others: the joins at the end would be the same.
    std::uint64_t level = 0;
    for (; blocks % 2 == 0; blocks /= 2) ++level;
    std::copy_n(levels[level], count, sums);
    for (blocks /= 2, ++level; blocks != 0; blocks /= 2, ++level)
      if (blocks % 2 == 1)
        for (std::int64_t c = 0; c < count; ++c) sums[c] = levels[level][c] + sums[c];
    std::copy_n(sums, count, out + from);
  }
}

}  // namespace wengert::reference
