// Included by arch.cpp only. Attention without its weights in memory: tiles of queries meet blocks of keys, and a row's
// maximum and sum are brought up to date block by block. The backward forms the weights again from each row's maximum
// and sum. Sources: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018; Dao et al.,
// "FlashAttention", NeurIPS 2022.
//
// Everything about a tile is done on one thread, in an order that depends on the shapes alone.

namespace wengert::xsimd_backend {
namespace {

constexpr std::int64_t query_rows = 48;               // of a tile; a multiple of every tile_rows
constexpr std::int64_t block_keys = 256;              // a whole number of panels, and of groups of 128 random bits
constexpr std::int64_t weight_row = block_keys + 16;  // rows of weights apart: not a power of two, for the cache's sake
static_assert(query_rows % tile_rows == 0 && block_keys % tile_columns == 0 && block_keys <= block_k);

// A matrix as the left operand, where it lies: element (i, p) at x[i * row + p * column]. To pack it, as large products
// do, would cost as much as to multiply it by the few columns there are.
struct Left {
  const float* x;
  std::int64_t row, column;
};

// Not inlined: the sums would not stay in registers.
template <int Rows>
__attribute__((noinline)) void multiply_rows_by_panel(const Left& a, const float* b, std::int64_t depth, float* c,
                                                      std::int64_t c_row, std::int64_t columns, float alpha,
                                                      float beta) {
  Floats sum[Rows][2];
#pragma GCC unroll 12
  for (int i = 0; i < Rows; ++i) sum[i][0] = sum[i][1] = Floats(0.0F);
  const float* from = a.x;
  for (std::int64_t p = 0; p < depth; ++p, from += a.column, b += tile_columns) {
    const Floats b0 = load(b), b1 = load(b + width);
#pragma GCC unroll 12
    for (int i = 0; i < Rows; ++i) {
      const Floats value(from[i * a.row]);
      sum[i][0] = multiply_add(value, b0, sum[i][0]);
      sum[i][1] = multiply_add(value, b1, sum[i][1]);
    }
  }
  const Floats scale(alpha), keep(beta);
  const auto finish = [&](Floats total, float* out, std::int64_t count) WENGERT_LAMBDA {
    total = total * scale;
    if (count >= width) return store(out, beta == 0.0F ? total : total + keep * load(out));
    store_some(out, beta == 0.0F ? total : total + keep * load_some(out, count), count);
  };
#pragma GCC unroll 12
  for (int i = 0; i < Rows; ++i) {
    finish(sum[i][0], c + i * c_row, columns);
    if (columns > width) finish(sum[i][1], c + i * c_row + width, columns - width);
  }
}

// c (rows, columns) = alpha * a b + beta * c, from packed panels of b, of which each has `stored` rows and the first
// `depth` count.
void multiply_packed(Left a, const float* b, std::int64_t stored, std::int64_t depth, float* c, std::int64_t c_row,
                     std::int64_t rows, std::int64_t columns, float alpha, float beta) {
  constexpr int most = static_cast<int>(tile_rows), some = most / 3;
  for (std::int64_t column = 0; column < columns; column += tile_columns, b += tile_columns * stored) {
    const std::int64_t left = smaller(tile_columns, columns - column);
    const auto at = [&](std::int64_t i) WENGERT_LAMBDA { return Left{a.x + i * a.row, a.row, a.column}; };
    std::int64_t i = 0;
    for (; i + most <= rows; i += most)
      multiply_rows_by_panel<most>(at(i), b, depth, c + i * c_row + column, c_row, left, alpha, beta);
    for (; i + some <= rows; i += some)
      multiply_rows_by_panel<some>(at(i), b, depth, c + i * c_row + column, c_row, left, alpha, beta);
    for (; i < rows; ++i) multiply_rows_by_panel<1>(at(i), b, depth, c + i * c_row + column, c_row, left, alpha, beta);
  }
}

// A matrix (rows, columns), or the transpose of one, as the right operand; rows <= block_k.
void pack_right(const float* x, std::int64_t row_step, std::int64_t column_step, std::int64_t rows,
                std::int64_t columns, float* packed) {
  Product product{};
  product.n = columns, product.k = rows;
  product.b = x, product.b_row = row_step, product.b_col = column_step;
  pack_b(product, packed, 0, panels(columns));
}
WENGERT_INLINE std::int64_t padded(std::int64_t columns) { return panels(columns) * tile_columns; }

// The keys of one head and one sequence as right operands, block by block.
struct Keys {
  const Attend& args;
  float *scores, *values;  // k^T for the scores, v
  float *plain, *turned;   // k, v^T: for the backward alone

  // Floats of one of the four kinds, for one block.
  static std::int64_t wide(const Attend& args) { return block_keys * args.d; }
  static std::int64_t narrow(const Attend& args) { return block_keys * padded(args.d); }

  std::int64_t count(std::int64_t block) const { return smaller(block_keys, args.tk - block * block_keys); }

  void pack(std::int64_t head) const {
    const std::int64_t d = args.d;
    for (std::int64_t block = 0; block * block_keys < args.tk; ++block) {
      const std::int64_t at = (head * args.tk + block * block_keys) * d, keys = count(block);
      pack_right(args.k + at, 1, d, d, keys, scores + block * wide(args));
      pack_right(args.v + at, d, 1, keys, d, values + block * narrow(args));
      if (!plain) continue;
      pack_right(args.k + at, d, 1, keys, d, plain + block * narrow(args));
      pack_right(args.v + at, 1, d, d, keys, turned + block * wide(args));
    }
  }
};

// How many of the `count` keys of a block query `row` sees.
WENGERT_INLINE std::int64_t keys_seen(const Attend& args, std::int64_t row, std::int64_t block, std::int64_t count) {
  if (!args.causal) return count;
  const std::int64_t seen = row + 1 + args.tk - args.tq - block * block_keys;
  return seen < 0 ? 0 : smaller(seen, count);
}

// Calls body(j, load, store, count) for each register of a row of n floats.
template <class Body>
WENGERT_INLINE void for_each_part(std::int64_t n, Body body) {
  for_each_register(
      n, [&](std::int64_t j, auto get, auto put) WENGERT_LAMBDA { body(j, get, put, n - j < width ? n - j : width); });
}

// Which of a row's weights in one block of keys are kept.
struct RowMask {
  alignas(64) std::uint8_t bits[block_keys / 8];

  WENGERT_INLINE RowMask(const Attend& args, std::int64_t row, std::int64_t block, std::int64_t keys) {
    Drawing drawing = args.drawing;
    drawing.base += static_cast<std::uint64_t>(16 * (row * ((args.tk + 127) / 128) + block * (block_keys / 128)));
    keep_mask(drawing, 0, (keys + 127) / 128, bits);
  }
  // Lanes that are dropped become +0. j is a multiple of the width.
  WENGERT_INLINE Floats keep(std::int64_t j, Floats x) const { return select_bits(bits_at<true>(bits, j, width), x); }
};

// exp((scores - shift) - log_sum) in place, +0 from `seen` to `all`; returns the sum.
WENGERT_INLINE float weigh(float* row, const float* mask, float shift, float log_sum, std::int64_t seen,
                           std::int64_t all) {
  const Floats offset(shift), rest(log_sum);
  Floats sum(0.0F);
  for_each_part(seen, [&](std::int64_t j, auto get, auto put, std::int64_t count) WENGERT_LAMBDA {
    Floats score = get(row + j);
    if (mask) score = score + get(mask + j);
    const Floats weight = xsimd::exp((score - offset) - rest);
    sum = sum + first_of(weight, count);
    put(row + j, weight);
  });
  for (std::int64_t j = seen; j < all; ++j) row[j] = 0.0F;
  return sum_lanes(sum);
}

// NaN wins; -inf if there are no scores.
WENGERT_INLINE float largest_score(const float* row, const float* mask, std::int64_t n) {
  const float lowest = -__builtin_inff();
  Floats best(lowest);
  for_each_part(n, [&](std::int64_t j, auto get, auto, std::int64_t count) WENGERT_LAMBDA {
    Floats score = get(row + j);
    if (mask) score = score + get(mask + j);
    if (count < width) score = xsimd::select(first_of(Floats(1.0F), count) == Floats(0.0F), Floats(lowest), score);
    best = larger(best, score);
  });
  float lanes[width];
  store(lanes, best);
  float largest = lanes[0];
  for (std::int64_t i = 1; i < width; ++i) largest = lanes[i] > largest || lanes[i] != lanes[i] ? lanes[i] : largest;
  return largest;
}

// Scratch memory, cut into pieces.
struct Room {
  float* next;
  WENGERT_INLINE float* take(std::int64_t floats) {
    float* piece = next;
    next += (floats + 15) / 16 * 16;
    return piece;
  }
};
std::int64_t key_blocks(const Attend& args) { return (args.tk + block_keys - 1) / block_keys; }
std::int64_t attend_floats(const Attend& args, bool backward) {
  const std::int64_t blocks = key_blocks(args), each = Keys::wide(args) + Keys::narrow(args);
  const std::int64_t tile = query_rows * weight_row, right = query_rows * padded(args.d);
  return 16 * 16 + (backward ? 2 * blocks * each + 2 * tile + 2 * right + query_rows : blocks * each + tile);
}

// Tiles [begin, end) of all heads: query_rows queries each, fewer at the end of a sequence.
void attend(const Attend& args, std::int64_t begin, std::int64_t end, float* memory) {
  const std::int64_t d = args.d, blocks = key_blocks(args), tiles = (args.tq + query_rows - 1) / query_rows;
  Room room{memory};
  const Keys keys{args, room.take(blocks * Keys::wide(args)), room.take(blocks * Keys::narrow(args)), nullptr, nullptr};
  float* const weights = room.take(query_rows * weight_row);
  std::int64_t packed = -1;  // the head whose keys are packed
  for (std::int64_t at = begin; at < end; ++at) {
    const std::int64_t head = at / tiles, first = at % tiles * query_rows, rows = smaller(query_rows, args.tq - first);
    if (head != packed) keys.pack(packed = head);
    const float* mask = args.key_mask ? args.key_mask + head / args.heads * args.tk : nullptr;
    float *out = args.out + (head * args.tq + first) * d, *norms = args.norms + 2 * (head * args.tq + first);
    const Left queries{args.q + (head * args.tq + first) * d, d, 1};
    float shift[query_rows], sum[query_rows];
    for (std::int64_t i = 0; i < rows; ++i) shift[i] = -__builtin_inff(), sum[i] = 0.0F;
    bool some = false;
    for (std::int64_t block = 0; block < blocks; ++block) {
      const std::int64_t count = keys_seen(args, first + rows - 1, block, keys.count(block));
      if (count == 0) break;  // the future, from here on
      multiply_packed(queries, keys.scores + block * Keys::wide(args), d, d, weights, weight_row, rows, count,
                      args.scale, 0.0F);
      const float* block_mask = mask ? mask + block * block_keys : nullptr;
      for (std::int64_t i = 0; i < rows; ++i) {
        float* row = weights + i * weight_row;
        const std::int64_t seen = keys_seen(args, first + i, block, count);
        const float best = largest_score(row, block_mask, seen), before = shift[i];
        if (!(best <= before)) shift[i] = best;
        if (shift[i] == -__builtin_inff()) {  // nothing seen yet
          weigh(row, nullptr, 0.0F, 0.0F, 0, count);
          continue;
        }
        const float more = weigh(row, block_mask, shift[i], 0.0F, seen, count);
        if (some && shift[i] != before) {
          const float rescale = before == -__builtin_inff() ? 0.0F : __builtin_expf(before - shift[i]);
          sum[i] *= rescale;
          const Floats factor(rescale);
          map(out + i * d, out + i * d, d, [=](Floats x) { return x * factor; });
        }
        sum[i] += more;
        if (!args.drop) continue;
        const RowMask kept(args, head * args.tq + first + i, block, seen);
        const Floats factor(args.drawing.scale);
        for_each_part(seen, [&](std::int64_t j, auto get, auto put, std::int64_t)
                                WENGERT_LAMBDA { put(row + j, kept.keep(j, get(row + j) * factor)); });
      }
      multiply_packed({weights, weight_row, 1}, keys.values + block * Keys::narrow(args), keys.count(block), count, out,
                      d, rows, d, 1.0F, some ? 1.0F : 0.0F);
      some = true;
    }
    for (std::int64_t i = 0; i < rows; ++i) {
      const bool blind = sum[i] == 0.0F;
      const Floats divisor(sum[i]), zero(0.0F);
      map(out + i * d, out + i * d, d, [=](Floats x) { return blind ? zero : x / divisor; });
      norms[2 * i] = blind ? 0.0F : shift[i];
      norms[2 * i + 1] = blind ? __builtin_inff() : __builtin_logf(sum[i]);
    }
  }
}

// The gradients of heads [begin, end).
void attend_backward(const Attend& args, std::int64_t begin, std::int64_t end, float* memory) {
  const std::int64_t d = args.d, blocks = key_blocks(args);
  Room room{memory};
  const Keys keys{args, room.take(blocks * Keys::wide(args)), room.take(blocks * Keys::narrow(args)),
                  room.take(blocks * Keys::narrow(args)), room.take(blocks * Keys::wide(args))};
  float *const weights = room.take(query_rows * weight_row), *const slopes = room.take(query_rows * weight_row);
  float *const right_queries = room.take(query_rows * padded(d)), *const right_grads =
                                                                      room.take(query_rows * padded(d));
  float* const means = room.take(query_rows);
  for (std::int64_t head = begin; head < end; ++head) {
    keys.pack(head);
    const float* mask = args.key_mask ? args.key_mask + head / args.heads * args.tk : nullptr;
    float *to_k = args.to_k + head * args.tk * d, *to_v = args.to_v + head * args.tk * d;
    for (float* to : {to_k, to_v})
      for_each_register(args.tk * d, [=](std::int64_t j, auto, auto put) WENGERT_LAMBDA { put(to + j, Floats(0.0F)); });
    for (std::int64_t first = 0; first < args.tq; first += query_rows) {
      const std::int64_t rows = smaller(query_rows, args.tq - first), place = (head * args.tq + first) * d;
      const float *q = args.q + place, *grad = args.grad + place, *out = args.forward + place;
      float* to_q = args.to_q + place;
      pack_right(q, d, 1, rows, d, right_queries);
      pack_right(grad, d, 1, rows, d, right_grads);
      for (std::int64_t i = 0; i < rows; ++i) {  // the mean slope of a row's scores, from what came out
        means[i] = sum_registers(
            d, [=](std::int64_t j, auto get) WENGERT_LAMBDA { return get(grad + i * d + j) * get(out + i * d + j); });
        for_each_register(d,
                          [=](std::int64_t j, auto, auto put) WENGERT_LAMBDA { put(to_q + i * d + j, Floats(0.0F)); });
      }
      for (std::int64_t block = 0; block < blocks; ++block) {
        const std::int64_t count = keys_seen(args, first + rows - 1, block, keys.count(block));
        if (count == 0) break;
        multiply_packed({q, d, 1}, keys.scores + block * Keys::wide(args), d, d, weights, weight_row, rows, count,
                        args.scale, 0.0F);
        multiply_packed({grad, d, 1}, keys.turned + block * Keys::wide(args), d, d, slopes, weight_row, rows, count,
                        1.0F, 0.0F);
        const float* block_mask = mask ? mask + block * block_keys : nullptr;
        for (std::int64_t i = 0; i < rows; ++i) {
          const std::int64_t seen = keys_seen(args, first + i, block, count);
          float *weight = weights + i * weight_row, *slope = slopes + i * weight_row;
          const float* norm = args.norms + 2 * (head * args.tq + first + i);
          weigh(weight, block_mask, norm[0], norm[1], seen, count);
          const Floats mean(means[i]), scale(args.scale), factor(args.drawing.scale);
          if (args.drop) {
            const RowMask kept(args, head * args.tq + first + i, block, seen);
            for_each_part(seen, [&](std::int64_t j, auto get, auto put, std::int64_t) WENGERT_LAMBDA {
              const Floats share = get(weight + j);
              put(slope + j, share * (kept.keep(j, get(slope + j) * factor) - mean) * scale);
              put(weight + j, kept.keep(j, share * factor));
            });
          } else {
            for_each_part(seen, [&](std::int64_t j, auto get, auto put, std::int64_t) WENGERT_LAMBDA {
              put(slope + j, get(weight + j) * (get(slope + j) - mean) * scale);
            });
          }
          for (std::int64_t j = seen; j < count; ++j) slope[j] = 0.0F;
        }
        const std::int64_t from = block * block_keys * d;
        multiply_packed({weights, 1, weight_row}, right_grads, rows, rows, to_v + from, d, count, d, 1.0F, 1.0F);
        multiply_packed({slopes, 1, weight_row}, right_queries, rows, rows, to_k + from, d, count, d, 1.0F, 1.0F);
        multiply_packed({slopes, weight_row, 1}, keys.plain + block * Keys::narrow(args), keys.count(block), count,
                        to_q, d, rows, d, 1.0F, 1.0F);
      }
    }
  }
}

}  // namespace
}  // namespace wengert::xsimd_backend
