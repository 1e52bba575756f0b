// Included by arch.cpp only. Matrix product: packed panels, a tile of c in registers.
// Source of the scheme: Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", TOMS 34(3), 2008.
//
// An element of c is summed over k in one fixed order, whatever the range of rows, so threads do not change the bits.

namespace wengert::xsimd_backend {
namespace {

// A tile of c: rows x (2 registers). As many sums as the register file holds beside two of b and one of a.
#if defined(__AVX512F__)
constexpr std::int64_t tile_rows = 12;
#elif defined(__AVX2__)
constexpr std::int64_t tile_rows = 6;
#else
constexpr std::int64_t tile_rows = 4;
#endif
constexpr std::int64_t tile_columns = 2 * width;
constexpr std::int64_t block_k = 256;
constexpr std::int64_t block_rows = 16 * tile_rows;  // of a: block_rows x block_k floats stay in the second-level cache

WENGERT_INLINE std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
WENGERT_INLINE std::int64_t panels(std::int64_t n) { return (n + tile_columns - 1) / tile_columns; }

// packed_b: for each block of k, for each panel, for each p in the block: tile_columns values, padded with zeros. While
// one panel is copied, the next one is fetched: too many streams for the processor to see them coming.
void pack_b(const Product& product, float* packed, std::int64_t begin, std::int64_t end) {
  const std::int64_t all = panels(product.n);
  for (std::int64_t k0 = 0; k0 < product.k; k0 += block_k) {
    const std::int64_t depth = smaller(block_k, product.k - k0);
    for (std::int64_t panel = begin; panel < end; ++panel) {
      const std::int64_t column = panel * tile_columns, columns = smaller(tile_columns, product.n - column);
      float* out = packed + k0 * all * tile_columns + panel * depth * tile_columns;
      const float* in = product.b + k0 * product.b_row + column * product.b_col;
      if (product.b_col == 1 && columns == tile_columns) {
        for (std::int64_t p = 0; p < depth; ++p) {
          __builtin_prefetch(in + p * product.b_row + tile_columns);
          __builtin_prefetch(in + p * product.b_row + tile_columns + width);
          store(out + p * tile_columns, load(in + p * product.b_row));
          store(out + p * tile_columns + width, load(in + p * product.b_row + width));
        }
      } else if (product.b_row == 1 && columns == tile_columns) {  // a transposed b
        const std::int64_t whole = depth / transposed * transposed;
        for (std::int64_t p = 0; p < whole; p += transposed) {
          for (std::int64_t j = 0; j < tile_columns; ++j)
            __builtin_prefetch(in + (tile_columns + j) * product.b_col + p);
          for (std::int64_t j = 0; j < tile_columns; j += transposed)
            transpose(in + j * product.b_col + p, product.b_col, out + p * tile_columns + j, tile_columns);
        }
        for (std::int64_t p = whole; p < depth; ++p)
          for (std::int64_t j = 0; j < tile_columns; ++j) out[p * tile_columns + j] = in[p + j * product.b_col];
      } else {
        for (std::int64_t j = 0; j < tile_columns; ++j)
          for (std::int64_t p = 0; p < depth; ++p)
            out[p * tile_columns + j] = j < columns ? in[p * product.b_row + j * product.b_col] : 0.0F;
      }
    }
  }
}

// Rows [row, row + rows) and k in [k0, k0 + depth) of a, tile by tile: for each p tile_rows values, padded with zeros.
void pack_a(const Product& product, std::int64_t row, std::int64_t rows, std::int64_t k0, std::int64_t depth,
            float* out) {
  for (std::int64_t tile = 0; tile < rows; tile += tile_rows, out += tile_rows * depth) {
    const std::int64_t valid = smaller(tile_rows, rows - tile);
    const float* in = product.a + (row + tile) * product.a_row + k0 * product.a_col;
    if (product.a_row == 1) {
      if (valid == tile_rows) {
        for (std::int64_t p = 0; p < depth; ++p)
          std::memcpy(out + p * tile_rows, in + p * product.a_col, sizeof(float) * tile_rows);
      } else {
        for (std::int64_t p = 0; p < depth; ++p)
          for (std::int64_t i = 0; i < tile_rows; ++i)
            out[p * tile_rows + i] = i < valid ? in[i + p * product.a_col] : 0.0F;
      }
    } else {
      const std::int64_t squares = product.a_col == 1 ? valid / 4 * 4 : 0, whole = depth / 4 * 4;
      for (std::int64_t i = 0; i < squares; i += 4)
        for (std::int64_t p = 0; p < whole; p += 4)
          transpose4(in + i * product.a_row + p, product.a_row, out + p * tile_rows + i, tile_rows);
      for (std::int64_t i = 0; i < tile_rows; ++i)
        for (std::int64_t p = i < squares ? whole : 0; p < depth; ++p)
          out[p * tile_rows + i] = i < valid ? in[i * product.a_row + p * product.a_col] : 0.0F;
    }
  }
}

// Where a tile of c lies and what becomes of it.
struct Tile {
  float* c;
  std::int64_t c_row, rows, columns;  // rows <= tile_rows, columns <= tile_columns
  float alpha, beta;
  const float* bias;
};

// c = alpha * a b (+ what is there already, times beta) (+ bias), for a tile of at most Rows rows. Not inlined, and
// with its numbers in memory: inside a loop compilers would keep them in registers, of which the sums leave none. c is
// fetched while the sums form.
template <std::int64_t Rows>
[[gnu::noinline]] void multiply_tile(const float* a, const float* b, std::int64_t depth, const Tile& tile) {
  Floats sum[Rows][2];
#pragma GCC unroll 12
  for (std::int64_t i = 0; i < Rows; ++i) sum[i][0] = sum[i][1] = Floats(0.0F);
  for (std::int64_t i = 0; i < tile.rows; ++i) {
    __builtin_prefetch(tile.c + i * tile.c_row, 1);
    __builtin_prefetch(tile.c + i * tile.c_row + tile_columns - 1, 1);
  }
  for (std::int64_t p = 0; p < depth; ++p, a += tile_rows, b += tile_columns) {
    const Floats b0 = load(b), b1 = load(b + width);
#pragma GCC unroll 12
    for (std::int64_t i = 0; i < Rows; ++i) {
      const Floats value(a[i]);
      sum[i][0] = multiply_add(value, b0, sum[i][0]);
      sum[i][1] = multiply_add(value, b1, sum[i][1]);
    }
  }
  const auto finish = [&tile](Floats total, float* out, std::int64_t column, std::int64_t count) WENGERT_LAMBDA {
    const bool whole = count == width;
    if (tile.alpha != 1.0F) total = total * Floats(tile.alpha);
    if (tile.beta != 0.0F) total = total + Floats(tile.beta) * (whole ? load(out) : load_some(out, count));
    if (tile.bias) total = total + (whole ? load(tile.bias + column) : load_some(tile.bias + column, count));
    if (whole)
      store(out, total);
    else
      store_some(out, total, count);
  };
#pragma GCC unroll 12
  for (std::int64_t i = 0; i < Rows; ++i) {
    if (i == tile.rows) break;
    finish(sum[i][0], tile.c + i * tile.c_row, 0, smaller(width, tile.columns));
    if (tile.columns > width) finish(sum[i][1], tile.c + i * tile.c_row + width, width, tile.columns - width);
  }
}

void multiply_rows(const Product& product, const float* packed_b, float* packed_a, std::int64_t begin,
                   std::int64_t end) {
  const std::int64_t all = panels(product.n);
  for (std::int64_t row = begin; row < end; row += block_rows) {
    const std::int64_t rows = smaller(block_rows, end - row);
    for (std::int64_t k0 = 0; k0 < product.k; k0 += block_k) {
      const std::int64_t depth = smaller(block_k, product.k - k0);
      const float beta = k0 == 0 ? product.beta : 1.0F;
      const float* bias = k0 + depth == product.k ? product.bias : nullptr;
      pack_a(product, row, rows, k0, depth, packed_a);
      const float* block_b = packed_b + k0 * all * tile_columns;
      for (std::int64_t panel = 0; panel < all; ++panel) {
        const std::int64_t column = panel * tile_columns, columns = smaller(tile_columns, product.n - column);
        for (std::int64_t tile = 0; tile < rows; tile += tile_rows) {
          const std::int64_t some = smaller(tile_rows, rows - tile);
          const auto multiply = 3 * some <= tile_rows       ? multiply_tile<tile_rows / 3>
                                : 3 * some <= 2 * tile_rows ? multiply_tile<2 * tile_rows / 3>
                                                            : multiply_tile<tile_rows>;
          multiply(packed_a + tile * depth, block_b + panel * depth * tile_columns, depth,
                   {product.c + (row + tile) * product.c_row + column, product.c_row, some, columns, product.alpha,
                    beta, bias ? bias + column : nullptr});
        }
      }
    }
  }
}

// --- Few rows: every row of a transposed b is read once, and meets all rows of a ---

constexpr std::int64_t thin_rows = 6;

template <int Rows>
void multiply_thin_rows(const Product& product) {
  for (std::int64_t j = 0; j < product.n; ++j) {
    const float* b = product.b + j * product.b_col;
    Floats sum[Rows];
#pragma GCC unroll 6
    for (int i = 0; i < Rows; ++i) sum[i] = Floats(0.0F);
    std::int64_t p = 0;
    for (; p + width <= product.k; p += width) {
      const Floats value = load(b + p);
#pragma GCC unroll 6
      for (int i = 0; i < Rows; ++i) sum[i] = multiply_add(load(product.a + i * product.a_row + p), value, sum[i]);
    }
    if (const std::int64_t rest = product.k - p; rest > 0) {
      const Floats value = load_some(b + p, rest);
#pragma GCC unroll 6
      for (int i = 0; i < Rows; ++i)
        sum[i] = multiply_add(load_some(product.a + i * product.a_row + p, rest), value, sum[i]);
    }
    for (int i = 0; i < Rows; ++i) {
      float* c = product.c + i * product.c_row + j;
      float total = sum_lanes(sum[i]) * product.alpha;
      if (product.beta != 0.0F) total += product.beta * *c;
      if (product.bias) total += product.bias[j];
      *c = total;
    }
  }
}

void multiply_thin(const Product& product) {
  switch (product.m) {
    case 1: return multiply_thin_rows<1>(product);
    case 2: return multiply_thin_rows<2>(product);
    case 3: return multiply_thin_rows<3>(product);
    case 4: return multiply_thin_rows<4>(product);
    case 5: return multiply_thin_rows<5>(product);
    case 6: return multiply_thin_rows<6>(product);
    default: return;
  }
}

}  // namespace
}  // namespace wengert::xsimd_backend
