// Included by arch.cpp only. Element by element, and reductions.

namespace wengert::xsimd_backend {
namespace {

template <class Op>
WENGERT_INLINE void map(const float* x, float* out, std::int64_t n, Op op) {
  for_each_register(n, [&](std::int64_t j, auto get, auto put) WENGERT_LAMBDA { put(out + j, op(get(x + j))); });
}

// The formulas of the reference backend.
WENGERT_INLINE Floats times_unless_zero(Floats share, Floats x) {  // share * x, but 0 where share is 0 and x infinite
  return xsimd::select(share == Floats(0.0F), share, share * x);
}
WENGERT_INLINE Floats below(Floats x) {  // the normal distribution
  return Floats(0.5F) * xsimd::erfc(x * Floats(-0.70710678118654752F));
}
WENGERT_INLINE Floats gelu(Floats x) { return times_unless_zero(below(x), x); }
WENGERT_INLINE Floats gelu_slope(Floats x) {
  const Floats density = Floats(0.39894228040143268F) * xsimd::exp(Floats(-0.5F) * x * x);
  return below(x) + times_unless_zero(density, x);
}
WENGERT_INLINE Floats gelu_tanh_share(Floats x) {
  const Floats u = Floats(0.79788456080286536F) * (x + Floats(0.044715F) * x * x * x);
  return Floats(1.0F) / (Floats(1.0F) + xsimd::exp(Floats(-2.0F) * u));
}
WENGERT_INLINE Floats gelu_tanh(Floats x) { return times_unless_zero(gelu_tanh_share(x), x); }
WENGERT_INLINE Floats gelu_tanh_slope(Floats x) {
  const Floats share = gelu_tanh_share(x), bend = share * (Floats(1.0F) - share) * Floats(1.5957691216057307F);
  return share + times_unless_zero(bend, x * (Floats(1.0F) + Floats(0.134145F) * x * x));
}

void unary(int op, const float* x, float scalar, float* out, std::int64_t n) {
  const Floats s(scalar), zero(0.0F), sign(-0.0F);
  switch (static_cast<Unary>(op)) {
    case Unary::neg: return map(x, out, n, [=](Floats a) { return a ^ sign; });  // not 0 - a, which has no -0
    case Unary::square: return map(x, out, n, [](Floats a) { return a * a; });
    case Unary::sqrt: return map(x, out, n, [](Floats a) { return xsimd::sqrt(a); });
    case Unary::exp: return map(x, out, n, [](Floats a) { return xsimd::exp(a); });
    case Unary::log: return map(x, out, n, [](Floats a) { return xsimd::log(a); });
    case Unary::tanh: return map(x, out, n, [](Floats a) { return xsimd::tanh(a); });
    // NaN stays, as in PyTorch.
    case Unary::relu: return map(x, out, n, [=](Floats a) { return xsimd::select(a <= zero, zero, a); });
    case Unary::gelu: return map(x, out, n, gelu);
    case Unary::gelu_tanh: return map(x, out, n, gelu_tanh);
    case Unary::add_scalar: return map(x, out, n, [=](Floats a) { return a + s; });
    case Unary::mul_scalar: return map(x, out, n, [=](Floats a) { return a * s; });
    case Unary::div_scalar: return map(x, out, n, [=](Floats a) { return a / s; });
    case Unary::rsub_scalar: return map(x, out, n, [=](Floats a) { return s - a; });
    case Unary::rdiv_scalar: return map(x, out, n, [=](Floats a) { return s / a; });
    case Unary::clamp:
      return map(x, out, n, [=](Floats a) { return xsimd::select(a > s, s, xsimd::select(a < -s, -s, a)); });
  }
}

template <class Op>
WENGERT_INLINE void zip(const float* a, std::int64_t a_step, const float* b, std::int64_t b_step, float* out,
                        std::int64_t n, Op op) {
  if (n == 0) return;
  if (a_step != 0 && b_step != 0) {
    for_each_register(
        n, [&](std::int64_t j, auto get, auto put) WENGERT_LAMBDA { put(out + j, op(get(a + j), get(b + j))); });
  } else if (a_step != 0) {
    const Floats one(*b);
    for_each_register(n, [&](std::int64_t j, auto get, auto put) WENGERT_LAMBDA { put(out + j, op(get(a + j), one)); });
  } else if (b_step != 0) {
    const Floats one(*a);
    for_each_register(n, [&](std::int64_t j, auto get, auto put) WENGERT_LAMBDA { put(out + j, op(one, get(b + j))); });
  } else {
    const Floats all = op(Floats(*a), Floats(*b));
    for_each_register(n, [&](std::int64_t j, auto, auto put) WENGERT_LAMBDA { put(out + j, all); });
  }
}

void binary(int op, const float* a, std::int64_t a_step, const float* b, std::int64_t b_step, float* out,
            std::int64_t n) {
  const Floats zero(0.0F), one(1.0F), two(2.0F);
  const auto apply = [&](auto f) { zip(a, a_step, b, b_step, out, n, f); };
  switch (static_cast<Binary>(op)) {
    case Binary::add: return apply([](Floats x, Floats y) { return x + y; });
    case Binary::sub: return apply([](Floats x, Floats y) { return x - y; });
    case Binary::mul: return apply([](Floats x, Floats y) { return x * y; });
    case Binary::div: return apply([](Floats x, Floats y) { return x / y; });
    case Binary::equal: return apply([=](Floats x, Floats y) { return xsimd::select(x == y, one, zero); });
    case Binary::square_grad: return apply([=](Floats x, Floats y) { return x * (two * y); });
    case Binary::sqrt_grad: return apply([=](Floats x, Floats y) { return x / (two * y); });
    case Binary::tanh_grad: return apply([=](Floats x, Floats y) { return x * (one - y * y); });
    case Binary::relu_grad: return apply([=](Floats x, Floats y) { return xsimd::select(y <= zero, zero, x); });
    case Binary::gelu_grad: return apply([](Floats x, Floats y) { return x * gelu_slope(y); });
    case Binary::gelu_tanh_grad: return apply([](Floats x, Floats y) { return x * gelu_tanh_slope(y); });
  }
}

void add(const float* x, float* out, std::int64_t n) { binary(static_cast<int>(Binary::add), out, 1, x, 1, out, n); }

// --- Sums by the fixed tree ---

// Several registers of columns; the tree of docs/bits.md with these in place of a number.
template <int Count>
struct ColumnSums {
  Floats levels[58][Count];

  WENGERT_INLINE void carry(Floats* sum, std::int64_t complete_before) {
    int level = 0;
    for (; complete_before % 2 == 1; complete_before /= 2, ++level) add(levels[level], sum, sum);
#pragma GCC unroll 8
    for (int c = 0; c < Count; ++c) levels[level][c] = sum[c];
  }
  // What remains after `complete` blocks of 32, joined with the short block in `total` if there is one.
  WENGERT_INLINE void finish(std::int64_t complete, bool some, Floats* total) const {
    int level = 0;
    for (std::int64_t left = complete; left != 0; left /= 2, ++level) {
      if (left % 2 == 0) continue;
      if (some) {
        add(levels[level], total, total);
      } else {
#pragma GCC unroll 8
        for (int c = 0; c < Count; ++c) total[c] = levels[level][c];
      }
      some = true;
    }
  }
  WENGERT_INLINE static void add(const Floats* a, const Floats* b, Floats* out) {
#pragma GCC unroll 8
    for (int c = 0; c < Count; ++c) out[c] = a[c] + b[c];
  }
};

// Sums of Count registers side by side over rows begin <= i < end, of which there is one at least; row(i, x) fetches
// one.
template <int Count, class Row>
WENGERT_INLINE void sum_block(std::int64_t begin, std::int64_t end, Row row, Floats* total) {
  Floats sum[Count];  // in registers: nobody takes its address
  row(begin, sum);
  for (std::int64_t i = begin + 1; i < end; ++i) {
    Floats x[Count];
    row(i, x);
#pragma GCC unroll 8
    for (int c = 0; c < Count; ++c) sum[c] = sum[c] + x[c];
  }
#pragma GCC unroll 8
  for (int c = 0; c < Count; ++c) total[c] = sum[c];
}
// The same over n > 0 rows by the fixed tree.
template <int Count, class Row>
WENGERT_INLINE void tree_sums(std::int64_t n, Row row, Floats* total) {
  if (n <= 32) return sum_block<Count>(0, n, row, total);
  ColumnSums<Count> sums;
  const std::int64_t complete = n / 32;
  for (std::int64_t block = 0; block < complete; ++block) {
    sum_block<Count>(32 * block, 32 * block + 32, row, total);
    sums.carry(total, block);
  }
  if (n % 32 != 0) sum_block<Count>(32 * complete, n, row, total);
  sums.finish(complete, n % 32 != 0, total);
}

// Calls wide(j, count) for stripes of 8 and then 4 registers of n floats, long enough runs of memory for the hardware
// to read ahead, and narrow(j, load, store) for each register that is left. count.value is the 8 or the 4.
template <class Wide, class Narrow>
WENGERT_INLINE void for_each_stripe(std::int64_t n, Wide wide, Narrow narrow) {
  std::int64_t j = 0;
  for (; j + 8 * width <= n; j += 8 * width) wide(j, std::integral_constant<int, 8>());
  for (; j + 4 * width <= n; j += 4 * width) wide(j, std::integral_constant<int, 4>());
  for_each_register(n - j, [&](std::int64_t i, auto get, auto put) WENGERT_LAMBDA { narrow(j + i, get, put); });
}

template <int Count>
WENGERT_INLINE void store_stripe(float* out, const Floats* x) {
#pragma GCC unroll 8
  for (int c = 0; c < Count; ++c) store(out + c * width, x[c]);
}

void sum_columns(const float* x, std::int64_t n, std::int64_t inner, std::int64_t begin, std::int64_t end, float* out) {
  if (n == 0) {
    for (std::int64_t j = begin; j < end; ++j) out[j] = 0.0F;
    return;
  }
  for_each_stripe(
      end - begin,
      [&](std::int64_t j, auto count) WENGERT_LAMBDA {
        constexpr int registers = decltype(count)::value;
        const float* column = x + begin + j;
        Floats sum[registers];
        tree_sums<registers>(
            n,
            [column, inner](std::int64_t i, Floats* row) WENGERT_LAMBDA {
#pragma GCC unroll 8
              for (int c = 0; c < registers; ++c) row[c] = load(column + i * inner + c * width);
            },
            sum);
        store_stripe<registers>(out + begin + j, sum);
      },
      [&](std::int64_t j, auto get, auto put) WENGERT_LAMBDA {
        const float* column = x + begin + j;
        Floats sum[1];
        tree_sums<1>(
            n, [=](std::int64_t i, Floats* row) WENGERT_LAMBDA { *row = get(column + i * inner); }, sum);
        put(out + begin + j, sum[0]);
      });
}

// The larger; NaN wins.
WENGERT_INLINE Floats larger(Floats a, Floats b) { return xsimd::select((b > a) | xsimd::isnan(b), b, a); }

void max_columns(const float* x, std::int64_t n, std::int64_t inner, std::int64_t begin, std::int64_t end, float* out) {
  for_each_register(end - begin, [&](std::int64_t j, auto get, auto put) WENGERT_LAMBDA {
    const float* column = x + begin + j;
    Floats best = get(column);
    for (std::int64_t i = 1; i < n; ++i) best = larger(best, get(column + i * inner));
    put(out + begin + j, best);
  });
}

// Blocks are summed left to right; several at a time, because one after the other each addition waits for the last.
template <class T, class Term>
WENGERT_INLINE T row_tree_sum(std::int64_t n, Term term) {
  constexpr std::int64_t together = width == 16 ? 16 : 8;
  bits::TreeSum<T> sum;
  std::int64_t i = 0;
  for (; i + 32 * together <= n; i += 32 * together) {
    T partial[together];
#pragma GCC unroll 16
    for (std::int64_t b = 0; b < together; ++b) partial[b] = term(i + 32 * b);
    for (std::int64_t j = 1; j < 32; ++j) {
#pragma GCC unroll 16
      for (std::int64_t b = 0; b < together; ++b) partial[b] = partial[b] + term(i + 32 * b + j);
    }
#pragma GCC unroll 16
    for (std::int64_t b = 0; b < together; ++b) sum.add_block(partial[b]);
  }
  for (; i < n; ++i) sum.add(term(i));
  return sum.result();
}

float sum_row(const float* x, std::int64_t n) {
  return row_tree_sum<float>(n, [x](std::int64_t i) WENGERT_LAMBDA { return x[i]; });
}

double sum_squares(const float* x, std::int64_t n) {
  return row_tree_sum<double>(
      n, [x](std::int64_t i) WENGERT_LAMBDA { return static_cast<double>(x[i]) * static_cast<double>(x[i]); });
}

float max_row(const float* x, std::int64_t n) {
  Floats best(x[0]);
  std::int64_t i = 0;
  for (; i + width <= n; i += width) best = larger(best, load(x + i));
  float lanes[width];
  store(lanes, best);
  float largest = lanes[0];
  for (std::int64_t j = 1; j < width; ++j) largest = lanes[j] > largest || lanes[j] != lanes[j] ? lanes[j] : largest;
  for (; i < n; ++i) largest = x[i] > largest || x[i] != x[i] ? x[i] : largest;
  return largest;
}

std::int64_t argmax_row(const float* x, std::int64_t n) {
  const float largest = max_row(x, n);
  std::int64_t i = 0;
  if (largest != largest) {
    while (x[i] == x[i]) ++i;
    return i;
  }
  const Floats wanted(largest);
  while (i + width <= n && !xsimd::any(load(x + i) == wanted)) i += width;
  while (x[i] != largest) ++i;
  return i;
}

void id_range(const std::int64_t* ids, std::int64_t n, const std::int64_t* skip, std::int64_t* smallest,
              std::int64_t* largest) {
  using Ids = xsimd::batch<std::int64_t, Arch>;
  constexpr auto lanes = static_cast<std::int64_t>(Ids::size);
  constexpr std::int64_t chains = 4;
  std::int64_t low = INT64_MAX, high = INT64_MIN, i = 0;
  const auto count = [&](std::int64_t id) WENGERT_LAMBDA {
    if (skip && id == *skip) return;
    low = id < low ? id : low;
    high = id > high ? id : high;
  };
  if (!skip && n >= chains * lanes) {
    Ids lows[chains], highs[chains];
    for (std::int64_t c = 0; c < chains; ++c) lows[c] = highs[c] = Ids::load_unaligned(ids + c * lanes);
    for (i = chains * lanes; i + chains * lanes <= n; i += chains * lanes)
      for (std::int64_t c = 0; c < chains; ++c) {
        const Ids x = Ids::load_unaligned(ids + i + c * lanes);
        lows[c] = xsimd::min(lows[c], x);
        highs[c] = xsimd::max(highs[c], x);
      }
    std::int64_t each[2 * chains * lanes];
    for (std::int64_t c = 0; c < chains; ++c) {
      lows[c].store_unaligned(each + 2 * c * lanes);
      highs[c].store_unaligned(each + (2 * c + 1) * lanes);
    }
    for (const std::int64_t id : each) count(id);
  }
  for (; i < n; ++i) count(ids[i]);
  *smallest = low;
  *largest = high;
}

void transpose_plane(const float* in, std::int64_t in_row, float* out, std::int64_t out_row, std::int64_t rows,
                     std::int64_t columns) {
  const std::int64_t whole_rows = rows / transposed * transposed, whole_columns = columns / transposed * transposed;
  for (std::int64_t j = 0; j < whole_columns; j += transposed)
    for (std::int64_t i = 0; i < whole_rows; i += transposed)
      transpose(in + j * in_row + i, in_row, out + i * out_row + j, out_row);
  const auto singly = [&](std::int64_t i, std::int64_t j) { out[i * out_row + j] = in[j * in_row + i]; };
  for (std::int64_t i = 0; i < whole_rows; ++i)
    for (std::int64_t j = whole_columns; j < columns; ++j) singly(i, j);
  for (std::int64_t i = whole_rows; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) singly(i, j);
}

}  // namespace
}  // namespace wengert::xsimd_backend
