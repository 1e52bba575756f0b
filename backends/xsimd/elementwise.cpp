// Element by element with broadcasting, and reductions.

#include <algorithm>

#include "parallel.hpp"
#include "table.hpp"
#include "wengert/backends/xsimd.hpp"
#include "wengert/walk.hpp"

namespace wengert::xsimd_backend {

namespace {

constexpr std::int64_t line = 16;  // floats in a cache line: two threads never write to one

// exp and the like cost as much time as this many bytes moved.
std::int64_t bytes_per_element(Unary op) { return op == Unary::exp || op == Unary::log || op == Unary::tanh ? 32 : 8; }

// A sum by the fixed tree, of which sum(begin, count) forms a part: whole parts of the tree by several threads.
template <class T, class Sum>
T tree_sum(std::int64_t n, std::int64_t bytes, const Tensor& like, Sum sum) {
  constexpr std::int64_t part_terms = bits::TreeSum<T>::block_terms << 9;
  const std::int64_t parts = n / part_terms, rest = n % part_terms;
  if (parts < 2) return sum(std::int64_t{0}, n);
  Tensor sums = empty({parts}, dtype_of<T>, like.backend());
  auto* each = write<T>(sums);
  parallel(parts, 1, bytes, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) each[i] = sum(i * part_terms, part_terms);
  });
  bits::TreeSum<T> total;  // its blocks are the parts here, which join as blocks do
  for (std::int64_t i = 0; i < parts; ++i) total.add_block(each[i]);
  if (rest > 0) total.add(sum(parts * part_terms, rest));
  return total.result();
}

}  // namespace

void Kernels::unary(Unary op, const Tensor& x, double scalar, Tensor& out) {
  const auto* in = read<float>(x);
  auto* to = write<float>(out);
  const auto s = static_cast<float>(scalar);
  parallel(out.numel(), line, out.numel() * bytes_per_element(op), [&](std::int64_t begin, std::int64_t end) {
    table.unary(static_cast<int>(op), in + begin, s, to + begin, end - begin);
  });
}

void Kernels::binary(Binary op, const Tensor& a, const Tensor& b, Tensor& out) {
  const Walk walk(out.shape(), a.shape(), b.shape());
  const auto *from_a = read<float>(a), *from_b = read<float>(b);
  auto* to = write<float>(out);
  const std::int64_t inner = walk.extents[0], step_a = walk.a[0], step_b = walk.b[0], bytes = 12 * out.numel();
  if (walk.rank == 1) {
    return parallel(inner, line, bytes, [&](std::int64_t begin, std::int64_t end) {
      table.binary(static_cast<int>(op), from_a + begin * step_a, step_a, from_b + begin * step_b, step_b, to + begin,
                   end - begin);
    });
  }
  if (inner == 0) return;
  parallel(out.numel() / inner, std::max<std::int64_t>(1, line / inner), bytes,
           [&](std::int64_t begin, std::int64_t end) {
             for (std::int64_t i = begin; i < end; ++i) {
               const auto [at_a, at_b] = walk.at(i, 1);
               table.binary(static_cast<int>(op), from_a + at_a, step_a, from_b + at_b, step_b, to + i * inner, inner);
             }
           });
}

void Kernels::reduce(Reduce op, const Axis& axis, const Tensor& x, Tensor& out) {
  const auto* in = read<float>(x);
  auto* to = write<float>(out);
  if (out.numel() == 0) return;
  const std::int64_t bytes = 4 * axis.outer * axis.n * axis.inner;
  if (op == Reduce::sum && axis.outer == 1 && axis.inner == 1) {
    *to = tree_sum<float>(axis.n, bytes, x,
                          [&](std::int64_t begin, std::int64_t count) { return table.sum_row(in + begin, count); });
    return;
  }
  if (axis.inner == 1) {
    return parallel(axis.outer, line, bytes, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        to[i] = op == Reduce::sum ? table.sum_row(in + i * axis.n, axis.n) : table.max_row(in + i * axis.n, axis.n);
    });
  }
  const auto columns = op == Reduce::sum ? table.sum_columns : table.max_columns;
  if (axis.outer > 1) {
    return parallel(axis.outer, std::max<std::int64_t>(1, line / axis.inner), bytes,
                    [&](std::int64_t begin, std::int64_t end) {
                      for (std::int64_t i = begin; i < end; ++i)
                        columns(in + i * axis.n * axis.inner, axis.n, axis.inner, 0, axis.inner, to + i * axis.inner);
                    });
  }
  parallel(axis.inner, line, bytes,
           [&](std::int64_t begin, std::int64_t end) { columns(in, axis.n, axis.inner, begin, end, to); });
}

void Kernels::argmax(const Axis& axis, const Tensor& x, Tensor& out) {
  if (axis.inner != 1) return reference::Kernels<float>::argmax(axis, x, out);
  const auto* in = read<float>(x);
  auto* to = write<std::int64_t>(out);
  parallel(axis.outer, 8, 4 * x.numel(), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) to[i] = table.argmax_row(in + i * axis.n, axis.n);
  });
}

IdRange Kernels::id_range(const Tensor& ids, std::optional<std::int64_t> skip) {
  IdRange range;
  const auto* values = read<std::int64_t>(ids);
  table.id_range(values, ids.numel(), skip ? &*skip : nullptr, &range.smallest, &range.largest);
  return range;
}

void Kernels::sum_squares(const Tensor& x, Tensor& out) {
  const auto* in = read<float>(x);
  *write<double>(out) = tree_sum<double>(x.numel(), 4 * x.numel(), x, [&](std::int64_t begin, std::int64_t count) {
    return table.sum_squares(in + begin, count);
  });
}

}  // namespace wengert::xsimd_backend
