#pragma once
// What each architecture offers: one table of functions over raw pointers, filled in by kernels/*.hpp. Plain types
// only: this header is shared by files that are compiled for different processors.
//
// Every function works on a range and on one thread; who calls it splits the work. The result for an element depends
// neither on the range it is computed in nor on its place in it.

#include <cstdint>

#include "wengert/bits.hpp"

namespace wengert::xsimd_backend {

// One drawing of dropout, ready for use. threshold as in bits::keep_threshold.
struct Drawing {
  std::uint64_t seed = 0, stream = 0, base = 0;
  std::uint32_t threshold = 0;
  float scale = 1.0F;
};

// out (n, d) = dropout(tokens[ids] + positions[place]). The place of row i is position_ids[i % period] if there are
// ids, else start + i % period.
struct Embed {
  const float* tokens;
  const std::int64_t* ids;
  const float* positions;  // null: nothing is added
  const std::int64_t* position_ids;
  std::int64_t start, period, d;
  float* out;
  std::uint8_t* mask;  // null: nothing is dropped; else receives the bits
  Drawing drawing;
  bool stream;  // bypass the caches with what is written
};

// Sums of rows (., d) of which some elements are dropped. Term k of sum i is row order[starts[i] + k], or, without an
// order, row i + k * stride of `terms` terms.
struct SumRows {
  const float* rows;
  const std::uint8_t* mask;  // null: nothing is dropped
  float scale;
  const std::int64_t* order;
  const std::int64_t* starts;
  std::int64_t sums;           // how many there are, with an order
  const std::int64_t* select;  // null: all sums; else only these
  std::int64_t stride, terms, d;
  float* out;  // (sums, d)
};

// rows (batch, length, d), of which some elements are dropped, to positions (length, d), their sums over the batch > 0,
// and, row by row, to tokens[slots[row]] where that is not negative.
struct SplitRows {
  const float* rows;
  const std::uint8_t* mask;  // null: nothing is dropped
  float scale;
  const std::int64_t* slots;
  std::int64_t batch, length, d;
  float *tokens, *positions;
  bool stream;  // bypass the caches with what goes to tokens
};

// c (m, n) = alpha * a b + beta * c, with element (i, p) of a at a[i * a_row + p * a_col] and so on.
struct Product {
  std::int64_t m, n, k;
  const float *a, *b;
  std::int64_t a_row, a_col, b_row, b_col;
  float* c;
  std::int64_t c_row;
  const float* bias;  // (n), or null
  float alpha, beta;
};

// Rows (., n) to out and stats (., 2); see Kernels::normalize_rows. weight and bias (n), or null.
struct Normalize {
  const float *x, *weight, *bias;
  float eps;
  std::int64_t n;
  float *out, *stats;
};
struct NormalizeBackward {
  const float *grad, *x, *weight, *stats;
  std::int64_t n;
  float* out;  // null: not wanted
};

// Attention over all heads of all sequences, (batch * heads, tq or tk, d), d <= widest_head; see wengert::Attention.
struct Attend {
  const float *q, *k, *v;
  const float* key_mask;  // (batch, tk), or null
  std::int64_t heads, tq, tk, d;
  float scale;
  bool causal, drop;
  Drawing drawing;
  float* out;
  // (batch * heads, tq, 2): the largest score, and the logarithm of the sum of exp(score - largest); apart, because
  // added up they lose digits where scores are large.
  float* norms;
  // For the backward alone. `forward` is what the forward gave.
  const float *grad, *forward;
  float *to_q, *to_k, *to_v;
};

struct Table {
  const char* name;
  std::int64_t width;  // floats in a register

  void (*unary)(int op, const float* x, float scalar, float* out, std::int64_t n);
  // Steps are 0 (one value for all) or 1.
  void (*binary)(int op, const float* a, std::int64_t a_step, const float* b, std::int64_t b_step, float* out,
                 std::int64_t n);
  // out[j] for columns [begin, end) of x (n, inner); the fixed tree.
  void (*sum_columns)(const float* x, std::int64_t n, std::int64_t inner, std::int64_t begin, std::int64_t end,
                      float* out);
  void (*max_columns)(const float* x, std::int64_t n, std::int64_t inner, std::int64_t begin, std::int64_t end,
                      float* out);
  float (*sum_row)(const float* x, std::int64_t n);  // the fixed tree
  float (*max_row)(const float* x, std::int64_t n);
  double (*sum_squares)(const float* x, std::int64_t n);       // in double, the fixed tree of docs/bits.md
  std::int64_t (*argmax_row)(const float* x, std::int64_t n);  // n > 0; the first one, NaN the largest
  // Smallest and largest of n ids; those equal to *skip do not count (null: all do).
  void (*id_range)(const std::int64_t* ids, std::int64_t n, const std::int64_t* skip, std::int64_t* smallest,
                   std::int64_t* largest);
  // out[i][j] = in[j][i] for i < rows, j < columns; rows of `in` and `out` are so many floats apart.
  void (*transpose)(const float* in, std::int64_t in_row, float* out, std::int64_t out_row, std::int64_t rows,
                    std::int64_t columns);

  // Groups of 128 elements [begin, end) of a mask.
  void (*keep_mask)(const Drawing& drawing, std::int64_t begin, std::int64_t end, std::uint8_t* mask);
  // Elements [begin, end); begin is a multiple of 8.
  void (*apply_mask)(const float* x, const std::uint8_t* mask, float scale, float* out, std::int64_t begin,
                     std::int64_t end);
  // Draws groups [begin, end) of the mask of x (n) and writes the dropped elements.
  void (*drop)(const Drawing& drawing, const float* x, std::int64_t n, std::uint8_t* mask, float* out,
               std::int64_t begin, std::int64_t end);
  // Rows [begin, end); begin * d is a multiple of 128 if there is a mask.
  void (*embed)(const Embed& embed, std::int64_t begin, std::int64_t end);
  void (*sum_rows)(const SumRows& sums, std::int64_t begin, std::int64_t end);
  void (*split_rows)(const SplitRows& split, std::int64_t begin, std::int64_t end);  // positions [begin, end)
  void (*prefetch)(const float* row, std::int64_t d);                                // towards the second-level cache
  void (*add)(const float* x, float* out, std::int64_t n);                           // out += x

  // g null: the gradient is +0. momentum null: there is none.
  void (*sgd)(const bits::SgdScalars<float>& scalars, const float* g, float* param, float* momentum, std::int64_t n);
  void (*adam)(const bits::AdamScalars<float>& scalars, const float* g, float* param, float* m, float* v,
               std::int64_t n);

  // Rows of length n.
  void (*softmax_row)(const float* x, bool log, float* out, std::int64_t n);
  // norm: the maximum, and the logarithm of the sum of exp(x - maximum).
  void (*log_sum_exp)(const float* x, std::int64_t n, float* norm);
  // Sum of x - shift.
  float (*sum_shifted)(const float* x, float shift, std::int64_t n);
  // out = (exp((x - norm[0]) - norm[1]) - each) * grad
  void (*softmax_grad_row)(const float* x, const float* norm, float each, float grad, float* out, std::int64_t n);

  // Rows [begin, end) of c, where begin is a multiple of tile_rows. packed_b holds what pack_b has made of all of b: k
  // times the columns, rounded up to whole panels; packed_a is room for packed_a_floats.
  void (*multiply)(const Product& product, const float* packed_b, float* packed_a, std::int64_t begin,
                   std::int64_t end);
  void (*pack_b)(const Product& product, float* packed_b, std::int64_t begin, std::int64_t end);  // panels [begin, end)
  std::int64_t panel_columns, tile_rows, packed_a_floats;
  // The whole product, without packing, of at most thin_rows rows of a (row-major) by a transposed b; beta as in
  // multiply.
  void (*multiply_thin)(const Product& product);
  std::int64_t thin_rows;

  // Rows [begin, end).
  void (*normalize_rows)(const Normalize& args, std::int64_t begin, std::int64_t end);
  // to_weight and to_bias (n), or null: what these rows add to the gradients.
  void (*normalize_rows_backward)(const NormalizeBackward& args, std::int64_t begin, std::int64_t end, float* to_weight,
                                  float* to_bias);
  void (*softmax_backward_row)(const float* g, const float* y, bool log, float* out, std::int64_t n);
  void (*where)(const float* condition, const float* a, const float* b, float* out, std::int64_t n);
  // Tiles [begin, end) of all heads: each query_rows queries, or the rest of a sequence. `room`: attend_floats.
  void (*attend)(const Attend& args, std::int64_t begin, std::int64_t end, float* room);
  void (*attend_backward)(const Attend& args, std::int64_t begin, std::int64_t end, float* room);  // heads [begin, end)
  std::int64_t (*attend_floats)(const Attend& args, bool backward);
  std::int64_t query_rows, widest_head;
};

}  // namespace wengert::xsimd_backend
