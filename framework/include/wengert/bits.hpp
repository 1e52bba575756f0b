#pragma once
/// The embedding stack, bit for bit: each of its kernels as plain scalar code over raw pointers. Every backend is
/// tested against this file; docs/bits.md explains the rules and works examples.
///
/// Common to all: matrices are row-major; ids are in range; every operation is one IEEE operation rounded to T, in the
/// order written here (compile with -ffp-contract=off); scalars are computed in double and rounded to T once.
/// This header includes nothing of Wengert, so that a file compiled for one processor only can include it. What CUDA's
/// kernels call is constexpr: nvcc compiles such functions for the device, too.

#include <cfloat>
#include <cmath>
#include <cstdint>

#if defined(__FAST_MATH__)
#error "wengert/bits.hpp needs IEEE arithmetic: compile without -ffast-math"
#endif
static_assert(FLT_EVAL_METHOD == 0, "wengert/bits.hpp needs arithmetic that is rounded to the type of its operands");

namespace wengert::bits {

// --- Random numbers -------------------------------------------------------------------------------------------------

/// What one call of the generator gives.
struct Words {
  std::uint32_t word[4];
};

/// Philox4x32 with 10 rounds. The counter's words are counter (low, high), stream (low, high); the key's are seed (low,
/// high). Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011; constants and known answers:
/// Random123.
constexpr Words philox(std::uint64_t seed, std::uint64_t stream, std::uint64_t counter) {
  std::uint32_t c0 = static_cast<std::uint32_t>(counter), c1 = static_cast<std::uint32_t>(counter >> 32);
  std::uint32_t c2 = static_cast<std::uint32_t>(stream), c3 = static_cast<std::uint32_t>(stream >> 32);
  std::uint32_t k0 = static_cast<std::uint32_t>(seed), k1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53u} * c0;
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57u} * c2;
    c0 = static_cast<std::uint32_t>(product1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<std::uint32_t>(product1);
    c2 = static_cast<std::uint32_t>(product0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<std::uint32_t>(product0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

/// Counters that dropout of `count` elements uses up: 16 for each 128 elements begun.
constexpr std::uint64_t dropout_counters(std::int64_t count) {
  return 16 * ((static_cast<std::uint64_t>(count) + 127) / 128);
}

/// Words of int32 in a mask of `count` elements: whole groups of 128 bits.
constexpr std::int64_t mask_words(std::int64_t count) { return 4 * ((count + 127) / 128); }

/// An element is kept when its 16 random bits are >= this: 0 keeps all, 65536 keeps none.
inline std::uint32_t keep_threshold(double p) {
  if (p <= 0.0) return 0;
  if (p >= 1.0) return 65536;
  const double nearest = std::floor(65536.0 * p + 0.5);
  return nearest < 1.0 ? 1 : nearest > 65535.0 ? 65535 : static_cast<std::uint32_t>(nearest);
}

/// Factor of the kept elements, to be rounded to T: 1 / (1 - p), and 0 when nothing is kept.
inline double keep_scale(double p) { return p < 1.0 ? 1.0 / (1.0 - p) : 0.0; }

/// One drawing of dropout: probability to drop, and the place in the random sequence where it begins.
struct Drawing {
  double p = 0.0;
  std::uint64_t seed = 0, stream = 0, base = 0;

  /// The 16 random bits of flat element e. (The counter wraps around within 64 bits.)
  std::uint32_t bits(std::int64_t e) const {
    const auto i = static_cast<std::uint64_t>(e);
    const std::uint64_t slot = (i / 16) % 8;
    const Words words = philox(seed, stream, base + 16 * (i / 128) + i % 16);
    return (words.word[slot / 2] >> (16 * (slot % 2))) & 0xFFFFu;
  }
  bool keeps(std::int64_t e) const { return bits(e) >= keep_threshold(p); }
};

/// mask: bit e % 8 of byte e / 8 is 1 when element e < count is kept. Writes whole groups of 128 bits; bits past the
/// last element are 0 here and arbitrary in general.
inline void keep_mask(const Drawing& drawing, std::int64_t count, std::uint8_t* mask) {
  for (std::int64_t byte = 0; byte < 4 * mask_words(count); ++byte) mask[byte] = 0;
  for (std::int64_t e = 0; e < count; ++e)
    if (drawing.keeps(e)) mask[e / 8] = static_cast<std::uint8_t>(mask[e / 8] | (1u << (e % 8)));
}

inline bool kept(const std::uint8_t* mask, std::int64_t e) { return (mask[e / 8] >> (e % 8)) & 1u; }

/// out = kept ? x * scale : +0. By selection: a dropped element is +0 even where x is Inf or NaN.
template <class T>
void apply_mask(const T* x, const std::uint8_t* mask, double scale, std::int64_t count, T* out) {
  const T factor = static_cast<T>(scale);
  for (std::int64_t e = 0; e < count; ++e) out[e] = kept(mask, e) ? x[e] * factor : T(0);
}

// --- Sums -----------------------------------------------------------------------------------------------------------

/// The fixed-tree sum, term by term. Blocks of 32 consecutive terms are added left to right, starting with the first
/// term itself. Block sums are joined as a binary counter carries: when a block is complete and the counter holds a sum
/// of equally many blocks, both are joined (earlier + later), and so on upwards. At the end what is left is joined from
/// the latest to the earliest (earlier + later); a last block of fewer than 32 terms is the latest. The sum of nothing
/// is +0.
template <class T>
class TreeSum {
 public:
  static constexpr std::uint64_t block_terms = 32;

  void add(T term) {
    block_ = terms_ % block_terms == 0 ? term : block_ + term;
    ++terms_;
    if (terms_ % block_terms == 0) carry(block_);
  }

  /// The same as adding the 32 terms of a complete block, whose sum somebody else has formed. Only between blocks.
  void add_block(T sum) {
    terms_ += block_terms;
    carry(sum);
  }

  T result() const {
    bool some = terms_ % block_terms != 0;
    T sum = some ? block_ : T(0);
    for (std::uint64_t left = terms_ / block_terms, level = 0; left != 0; left /= 2, ++level) {
      if (left % 2 == 0) continue;
      sum = some ? levels_[level] + sum : levels_[level];
      some = true;
    }
    return sum;
  }

 private:
  // Before this block, bit `level` of the number of complete blocks says that levels_[level] holds a sum of 2^level
  // blocks.
  void carry(T sum) {
    int level = 0;
    for (std::uint64_t before = terms_ / block_terms - 1; before % 2 == 1; before /= 2, ++level)
      sum = levels_[level] + sum;
    levels_[level] = sum;
  }

  T levels_[60];  // not initialised: most sums are short
  T block_ = T(0);
  std::uint64_t terms_ = 0;
};

/// The fixed-tree sum of term(0), ..., term(n - 1).
template <class T, class Term>
T tree_sum(std::int64_t n, Term term) {
  TreeSum<T> sum;
  for (std::int64_t i = 0; i < n; ++i) sum.add(term(i));
  return sum.result();
}

/// out (m) = sum over the batch of x (batch, m), each element by the fixed tree in the order of the batch.
template <class T>
void sum_batch(const T* x, std::int64_t batch, std::int64_t m, T* out) {
  for (std::int64_t j = 0; j < m; ++j) out[j] = tree_sum<T>(batch, [&](std::int64_t b) { return x[b * m + j]; });
}

// --- Rows -----------------------------------------------------------------------------------------------------------

template <class T>
void fill(T* out, std::int64_t count, double value) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = static_cast<T>(value);
}

/// out (n, d) = table (rows, d) at ids (n).
template <class T>
void gather_rows(const T* table, const std::int64_t* ids, std::int64_t n, std::int64_t d, T* out) {
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t c = 0; c < d; ++c) out[i * d + c] = table[ids[i] * d + c];
}

/// out (batch, m) = a (batch, m) + b (m).
template <class T>
void add_broadcast(const T* a, const T* b, std::int64_t batch, std::int64_t m, T* out) {
  for (std::int64_t i = 0; i < batch; ++i)
    for (std::int64_t j = 0; j < m; ++j) out[i * m + j] = a[i * m + j] + b[j];
}

/// Adds up the rows (m, d) of equal ids (m), in the order of their place, each column by the fixed tree; rows whose id
/// is *skip are left out (null: none). Writes the ids that occur, ascending, to out_ids and their sums to out_rows;
/// both have room for m rows. Returns how many.
template <class T>
std::int64_t merge_rows(const std::int64_t* ids, const T* rows, std::int64_t m, std::int64_t d,
                        const std::int64_t* skip, std::int64_t* out_ids, T* out_rows) {
  std::int64_t count = 0;
  for (;;) {
    const std::int64_t* next = nullptr;  // the smallest id that has not been written yet
    for (std::int64_t i = 0; i < m; ++i) {
      if (skip && ids[i] == *skip) continue;
      if (count > 0 && ids[i] <= out_ids[count - 1]) continue;
      if (!next || ids[i] < *next) next = ids + i;
    }
    if (!next) return count;
    for (std::int64_t c = 0; c < d; ++c) {
      TreeSum<T> sum;
      for (std::int64_t i = 0; i < m; ++i)
        if (ids[i] == *next) sum.add(rows[i * d + c]);
      out_rows[count * d + c] = sum.result();
    }
    out_ids[count++] = *next;
  }
}

/// dense (num_rows, d) at ids (n) = dense + rows (n, d); ids are unique.
template <class T>
void add_rows(const std::int64_t* ids, const T* rows, std::int64_t n, std::int64_t d, T* dense) {
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t c = 0; c < d; ++c) dense[ids[i] * d + c] = dense[ids[i] * d + c] + rows[i * d + c];
}

/// out (n, d) = dropout(tokens[ids] + positions[position_ids]); ids and position_ids (n), one for each token in
/// row-major order. p = 0 keeps the sums as they are.
template <class T>
void embed_dropout(const T* tokens, const T* positions, const std::int64_t* ids, const std::int64_t* position_ids,
                   std::int64_t n, std::int64_t d, const Drawing& drawing, T* out) {
  const T factor = static_cast<T>(keep_scale(drawing.p));
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t c = 0; c < d; ++c) {
      const T sum = tokens[ids[i] * d + c] + positions[position_ids[i] * d + c];
      out[i * d + c] = drawing.p <= 0.0 ? sum : drawing.keeps(i * d + c) ? sum * factor : T(0);
    }
}

// --- Optimiser steps ------------------------------------------------------------------------------------------------

/// base to the power of exponent >= 0 by repeated squaring: the same bits on every machine, which std::pow does not
/// promise.
inline double power(double base, std::int64_t exponent) {
  double result = 1.0;
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 == 1) result *= base;
    base *= base;
  }
  return result;
}

/// The scalars of one SGD step, rounded to T. Step is wengert::SgdStep.
template <class T>
struct SgdScalars {
  T lr, momentum, take, weight_decay;
  bool has_momentum, nesterov, has_decay;

  template <class Step>
  explicit SgdScalars(const Step& step)
      : lr(static_cast<T>(step.lr)),
        momentum(static_cast<T>(step.momentum)),
        take(static_cast<T>(step.first ? 1.0 : 1.0 - step.dampening)),
        weight_decay(static_cast<T>(step.weight_decay)),
        has_momentum(step.momentum != 0.0),
        nesterov(step.nesterov),
        has_decay(step.weight_decay != 0.0) {}
};

/// Steps one element. `buffer` is used only with momentum.
template <class T>
constexpr void sgd_element(const SgdScalars<T>& s, T g, T& p, T* buffer) {
  if (s.has_decay) g = g + s.weight_decay * p;
  T direction = g;
  if (s.has_momentum) {
    *buffer = s.momentum * *buffer + s.take * g;
    direction = s.nesterov ? g + s.momentum * *buffer : *buffer;
  }
  p = p - s.lr * direction;
}

/// The scalars of one Adam step, rounded to T. Step is wengert::AdamStep.
template <class T>
struct AdamScalars {
  T beta1, take1, beta2, take2, eps, step, root, weight_decay, shrink;
  bool has_decay, decoupled;

  template <class Step>
  explicit AdamScalars(const Step& s)
      : beta1(static_cast<T>(s.beta1)),
        take1(static_cast<T>(1.0 - s.beta1)),
        beta2(static_cast<T>(s.beta2)),
        take2(static_cast<T>(1.0 - s.beta2)),
        eps(static_cast<T>(s.eps)),
        step(static_cast<T>(s.lr / (1.0 - power(s.beta1, s.step)))),
        root(static_cast<T>(1.0 / std::sqrt(1.0 - power(s.beta2, s.step)))),
        weight_decay(static_cast<T>(s.weight_decay)),
        shrink(static_cast<T>(1.0 - s.lr * s.weight_decay)),
        has_decay(s.weight_decay != 0.0),
        decoupled(s.decoupled) {}
};

/// Steps one element. Source: Kingma and Ba 2015 (Adam), Loshchilov and Hutter 2019 (decoupled decay).
template <class T>
constexpr void adam_element(const AdamScalars<T>& s, T g, T& p, T& m, T& v) {
  if (s.has_decay && s.decoupled) p = p * s.shrink;
  if (s.has_decay && !s.decoupled) g = g + s.weight_decay * p;
  m = s.beta1 * m + s.take1 * g;
  v = s.beta2 * v + s.take2 * (g * g);
  p = p - s.step * (m / (std::sqrt(v) * s.root + s.eps));
}

/// A gradient of a parameter (rows, d): dense when `ids` is null, otherwise `count` rows with ascending unique ids.
template <class T>
struct GradientView {
  const T* values = nullptr;
  const std::int64_t* ids = nullptr;
  std::int64_t count = 0;
};

/// Calls element(i, g) for every element i that a step touches, in ascending order: all of a dense gradient; the rows
/// of a row-sparse one, and unless `lazy` also the absent rows, with g = +0.
template <class T, class Element>
void for_each_stepped(const GradientView<T>& grad, std::int64_t rows, std::int64_t d, bool lazy, Element element) {
  if (!grad.ids) {
    for (std::int64_t i = 0; i < rows * d; ++i) element(i, grad.values[i]);
  } else if (lazy) {
    for (std::int64_t k = 0; k < grad.count; ++k)
      for (std::int64_t c = 0; c < d; ++c) element(grad.ids[k] * d + c, grad.values[k * d + c]);
  } else {
    for (std::int64_t row = 0, k = 0; row < rows; ++row) {
      const bool present = k < grad.count && grad.ids[k] == row;
      for (std::int64_t c = 0; c < d; ++c) element(row * d + c, present ? grad.values[k * d + c] : T(0));
      if (present) ++k;
    }
  }
}

/// param (rows, d), momentum like it or null. Step is wengert::SgdStep.
template <class T, class Step>
void sgd_step(const Step& step, const GradientView<T>& grad, std::int64_t rows, std::int64_t d, T* param, T* momentum) {
  const SgdScalars<T> scalars(step);
  for_each_stepped(grad, rows, d, step.lazy_rows,
                   [&](std::int64_t i, T g) { sgd_element(scalars, g, param[i], momentum ? momentum + i : nullptr); });
}

/// param, m and v (rows, d). Step is wengert::AdamStep.
template <class T, class Step>
void adam_step(const Step& step, const GradientView<T>& grad, std::int64_t rows, std::int64_t d, T* param, T* m, T* v) {
  const AdamScalars<T> scalars(step);
  for_each_stepped(grad, rows, d, step.lazy_rows,
                   [&](std::int64_t i, T g) { adam_element(scalars, g, param[i], m[i], v[i]); });
}

}  // namespace wengert::bits
