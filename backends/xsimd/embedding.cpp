// The embedding stack: lookups, dropout, the fused forward and its backward.

#include <algorithm>
#include <numeric>

#include "parallel.hpp"
#include "sort.hpp"
#include "table.hpp"
#include "wengert/backends/xsimd.hpp"

namespace wengert::xsimd_backend {

namespace {

// Outputs from here on bypass the caches: writing around them saves reading what is overwritten.
constexpr std::int64_t stream_from = 4 << 20, stream_rows_from = 4 << 20;

Drawing drawing_of(const wengert::Dropout& dropout) {
  return {dropout.state.seed, dropout.state.stream, dropout.state.counter, bits::keep_threshold(dropout.p),
          static_cast<float>(dropout.scale())};
}

std::uint8_t* mask_of(Tensor& bits) { return reinterpret_cast<std::uint8_t*>(write<std::int32_t>(bits)); }
const std::uint8_t* mask_of(const Tensor& bits) {
  return reinterpret_cast<const std::uint8_t*>(read<std::int32_t>(bits));
}

void run_embed(const Table& table, const Embed& embed, std::int64_t rows) {
  // Two threads never share a group of 128 mask bits.
  const std::int64_t unit = embed.mask ? 128 / std::gcd(embed.d, std::int64_t{128}) : 1;
  parallel(rows, unit, rows * embed.d * 8,
           [&](std::int64_t begin, std::int64_t end) { table.embed(embed, begin, end); });
}

// Calls table.sum_rows for the sums that `sums` selects, of which there are `count`; threads share the terms evenly.
void run_sums(const Table& table, const SumRows& sums, std::int64_t count) {
  const auto number = [&sums](std::int64_t i) { return sums.select ? sums.select[i] : i; };
  if (count == 0) return;
  const std::int64_t terms = sums.starts[sums.sums], bytes = (terms + count) * sums.d * 4;
  const auto first_from = [&](std::int64_t term) {  // the first selected sum that begins at this term or later
    std::int64_t low = 0, high = count;
    while (low < high) {
      const std::int64_t middle = low + (high - low) / 2;
      if (sums.starts[number(middle)] < term)
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  };
  parallel(terms, 1, bytes,
           [&](std::int64_t begin, std::int64_t end) { table.sum_rows(sums, first_from(begin), first_from(end)); });
}

Tensor sum_occurrences(const Table& table, SumRows sums, const Occurrences& found, const Tensor& like) {
  Tensor out = empty({found.count, sums.d}, like);
  sums.order = read<std::int64_t>(found.order);
  sums.starts = read<std::int64_t>(found.starts);
  sums.sums = found.count;
  sums.out = write<float>(out);
  run_sums(table, sums, found.count);
  return out;
}

// Both gradients from one pass over the upstream one; what is left are the tokens that occur more than once.
void split_gradient(const Table& table, SumRows sums, const Tensor& grad, const Tensor& ids, std::int64_t token_rows,
                    std::optional<std::int64_t> skip, RowGrad& token_grad, Tensor& position_rows) {
  const Occurrences found = find_occurrences(ids, token_rows, skip);
  const Repeats repeats = find_repeats(found, ids.numel());
  token_grad = {found.ids, empty({found.count, sums.d}, grad), token_rows};
  SplitRows split{};
  split.rows = sums.rows;
  split.mask = sums.mask;
  split.scale = sums.scale;
  split.slots = read<std::int64_t>(repeats.slots);
  split.length = position_rows.size(0);
  split.batch = ids.numel() / split.length;
  split.d = sums.d;
  split.tokens = write<float>(token_grad.rows);
  split.positions = write<float>(position_rows);
  split.stream = token_grad.rows.numel() * 4 >= stream_rows_from;
  parallel(split.length, 1, (2 * split.batch + 1) * split.length * split.d * 4,
           [&](std::int64_t begin, std::int64_t end) { table.split_rows(split, begin, end); });

  sums.order = read<std::int64_t>(found.order);
  sums.starts = read<std::int64_t>(found.starts);
  sums.sums = found.count;
  sums.select = read<std::int64_t>(repeats.repeated);
  sums.out = split.tokens;
  run_sums(table, sums, repeats.count);
}

// One row of positions stands for every sequence of the batch.
Tensor repeated(const Tensor& positions, std::int64_t count) {
  if (positions.numel() == count) return positions;
  Tensor all = empty({count}, positions);
  const auto* from = read<std::int64_t>(positions);
  auto* to = write<std::int64_t>(all);
  for (std::int64_t i = 0; i < count; i += positions.numel()) std::copy_n(from, positions.numel(), to + i);
  return all;
}

}  // namespace

void Kernels::gather_rows(const Tensor& rows, const Tensor& ids, Tensor& out) {
  Embed embed{};
  embed.tokens = read<float>(rows);
  embed.ids = read<std::int64_t>(ids);
  embed.d = rows.size(1);
  embed.out = write<float>(out);
  embed.stream = out.numel() * 4 >= stream_from;
  run_embed(table, embed, ids.numel());
}

RowGrad Kernels::merge_rows(const Tensor& ids, const Tensor& rows, std::int64_t num_rows,
                            std::optional<std::int64_t> skip) {
  const Occurrences found = find_occurrences(ids, num_rows, skip);
  SumRows sums{};
  sums.rows = read<float>(rows);
  sums.d = rows.size(1);
  return {found.ids, sum_occurrences(table, sums, found, rows), num_rows};
}

void Kernels::add_rows(const RowGrad& rows, Tensor& dense) {
  const auto* ids = read<std::int64_t>(rows.ids);
  const auto* values = read<float>(rows.rows);
  auto* to = write<float>(dense);
  const std::int64_t d = rows.rows.size(1);
  parallel(rows.count(), 1, rows.count() * d * 12, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      if (i + 4 < end) table.prefetch(to + ids[i + 4] * d, d);
      table.add(values + i * d, to + ids[i] * d, d);
    }
  });
}

void Kernels::keep_mask(const wengert::Dropout& dropout, std::int64_t count, Tensor& bits) {
  const Drawing drawing = drawing_of(dropout);
  auto* mask = mask_of(bits);
  parallel((count + 127) / 128, 4, count,
           [&](std::int64_t begin, std::int64_t end) { table.keep_mask(drawing, begin, end, mask); });
}

void Kernels::apply_mask(const Tensor& x, const Tensor& bits, double scale, Tensor& out) {
  const auto* in = read<float>(x);
  const auto* mask = mask_of(bits);
  auto* to = write<float>(out);
  parallel(out.numel(), 128, out.numel() * 8, [&](std::int64_t begin, std::int64_t end) {
    table.apply_mask(in, mask, static_cast<float>(scale), to, begin, end);
  });
}

void Kernels::dropout(const Tensor& x, const wengert::Dropout& dropout, Tensor& out, Saved& saved) {
  if (dropout.p == 1.0) return fill(out, 0.0);
  const std::int64_t n = x.numel(), groups = (n + 127) / 128;
  Tensor bits = empty({bits::mask_words(n)}, DType::int32, out.backend());
  const Drawing drawing = drawing_of(dropout);
  const auto* in = read<float>(x);
  auto* mask = mask_of(bits);
  auto* to = write<float>(out);
  parallel(groups, 4, 8 * n,
           [&](std::int64_t begin, std::int64_t end) { table.drop(drawing, in, n, mask, to, begin, end); });
  saved.push(bits);
}

void Kernels::dropout_backward(const Tensor& grad, const wengert::Dropout& dropout, const Saved& saved, Tensor& out) {
  if (dropout.p == 1.0) return fill(out, 0.0);
  apply_mask(grad, saved[0], dropout.scale(), out);
}

void Kernels::embed_dropout(const Tensor& tokens, const Tensor& positions, const Tensor& ids, const Positions& place,
                            const wengert::Dropout& dropout, Tensor& out, Saved& saved) {
  if (dropout.p == 1.0) return fill(out, 0.0);
  Embed embed{};
  embed.tokens = read<float>(tokens);
  embed.ids = read<std::int64_t>(ids);
  embed.positions = read<float>(positions);
  embed.position_ids = place.ids.defined() ? read<std::int64_t>(place.ids) : nullptr;
  embed.start = place.start;
  embed.period = place.ids.defined() ? place.ids.numel() : ids.size(-1);
  embed.d = tokens.size(1);
  embed.out = write<float>(out);
  embed.stream = out.numel() * 4 >= stream_from;
  if (!dropout.identity()) {
    Tensor bits = empty({bits::mask_words(out.numel())}, DType::int32, out.backend());
    embed.mask = mask_of(bits);
    embed.drawing = drawing_of(dropout);
    saved.push(bits);
  }
  run_embed(table, embed, ids.numel());
}

void Kernels::embed_dropout_backward(const Tensor& grad, const Tensor& ids, const Positions& place,
                                     const wengert::Dropout& dropout, const Saved& saved, std::int64_t token_rows,
                                     std::int64_t position_rows, std::optional<std::int64_t> skip, RowGrad* token_grad,
                                     RowGrad* position_grad) {
  if (dropout.p == 1.0)
    return wengert::Kernels::embed_dropout_backward(grad, ids, place, dropout, saved, token_rows, position_rows, skip,
                                                    token_grad, position_grad);
  SumRows sums{};
  sums.rows = read<float>(grad);
  sums.d = grad.size(-1);
  if (!dropout.identity()) {
    sums.mask = mask_of(saved[0]);
    sums.scale = static_cast<float>(dropout.scale());
  }
  if (token_grad && position_grad && !place.ids.defined() && ids.numel() > 0) {
    position_grad->ids = empty({ids.size(-1)}, ids);
    iota(position_grad->ids, place.start);
    position_grad->rows = empty({ids.size(-1), sums.d}, grad);
    position_grad->num_rows = position_rows;
    return split_gradient(table, sums, grad, ids, token_rows, skip, *token_grad, position_grad->rows);
  }
  if (token_grad) {
    const Occurrences found = find_occurrences(ids, token_rows, skip);
    *token_grad = {found.ids, sum_occurrences(table, sums, found, grad), token_rows};
  }
  if (!position_grad) return;
  if (place.ids.defined()) {
    const Occurrences found = find_occurrences(repeated(place.ids, ids.numel()), position_rows, {});
    *position_grad = {found.ids, sum_occurrences(table, sums, found, grad), position_rows};
    return;
  }
  const std::int64_t length = ids.size(-1);
  position_grad->ids = empty({length}, ids);
  iota(position_grad->ids, place.start);
  position_grad->rows = empty({length, sums.d}, grad);
  position_grad->num_rows = position_rows;
  sums.stride = length;
  sums.terms = length == 0 ? 0 : ids.numel() / length;
  sums.out = write<float>(position_grad->rows);
  if (sums.terms == 0) return fill(position_grad->rows, 0.0);
  parallel(length, 1, (ids.numel() + length) * sums.d * 4,
           [&](std::int64_t begin, std::int64_t end) { table.sum_rows(sums, begin, end); });
}

}  // namespace wengert::xsimd_backend
