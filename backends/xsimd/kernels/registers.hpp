// Included by arch.cpp only. The registers of this architecture, and the few primitives that xsimd does not have: loads
// and stores of part of a register, stores that bypass the caches, selection by mask bits, and Philox's 32 x 32 -> 64
// bit product.

namespace wengert::xsimd_backend {
namespace {

using Arch = WENGERT_XSIMD_ARCH;
using Floats = xsimd::batch<float, Arch>;
constexpr std::int64_t width = static_cast<std::int64_t>(Floats::size);

#define WENGERT_INLINE inline __attribute__((always_inline))

WENGERT_INLINE Floats load(const float* x) { return Floats::load_unaligned(x); }
WENGERT_INLINE void store(float* out, Floats x) { x.store_unaligned(out); }

// Philox runs over `Words`: 64-bit lanes of which the lower halves count, because that is what the multiplication takes
// and gives. What each architecture has besides:
//   multiply(a, b), upper(x)     the 64-bit product of the lower halves; the upper half, moved down
//   philox_counters(first, x)    consecutive counters in philox_registers registers, in the order that suits store_kept
//   store_kept(x, limit, mask)   one word of these counters: bits of its low halves at `mask`, of its high halves 2
//   bytes on
#if defined(__AVX512F__)

using Words = __m512i;

// The first 0 < count < width lanes; the others are 0.
WENGERT_INLINE Floats load_some(const float* x, std::int64_t count) {
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1U << count) - 1), x);
}
WENGERT_INLINE void store_some(float* out, Floats x, std::int64_t count) {
  _mm512_mask_storeu_ps(out, static_cast<__mmask16>((1U << count) - 1), x);
}
WENGERT_INLINE void store_streaming(float* out, Floats x) { _mm512_stream_ps(out, x); }
// Lanes whose bit is 1; +0 elsewhere.
WENGERT_INLINE Floats select_bits(std::uint32_t bits, Floats x) {
  return _mm512_maskz_mov_ps(static_cast<__mmask16>(bits), x);
}
// a * b + c, rounded once where the processor can. (xsimd 8 has no such thing for AVX-512.)
WENGERT_INLINE Floats multiply_add(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }

WENGERT_INLINE Words words(std::uint32_t value) { return _mm512_set1_epi64(value); }
WENGERT_INLINE Words multiply(Words a, Words b) { return _mm512_mul_epu32(a, b); }
WENGERT_INLINE Words upper(Words x) { return _mm512_srli_epi64(x, 32); }
WENGERT_INLINE Words exclusive_or(Words a, Words b) { return _mm512_xor_si512(a, b); }

constexpr int philox_registers = 2;
WENGERT_INLINE void philox_counters(std::uint64_t first, Words* x) {
  x[0] = _mm512_add_epi64(_mm512_set1_epi64(static_cast<long long>(first)), _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7));
  x[1] = _mm512_add_epi64(x[0], _mm512_set1_epi64(8));
}
struct Limit {
  __m512i value, places;
  WENGERT_INLINE explicit Limit(std::uint32_t threshold)
      : value(_mm512_set1_epi16(static_cast<short>(threshold))),
        // Of two registers of eight words each (in the lower half of 64 bits): the sixteen low halves, then the high
        // ones.
        places(_mm512_set_epi16(61, 57, 53, 49, 45, 41, 37, 33, 29, 25, 21, 17, 13, 9, 5, 1, 60, 56, 52, 48, 44, 40, 36,
                                32, 28, 24, 20, 16, 12, 8, 4, 0)) {}
};
WENGERT_INLINE void store_kept(const Words* x, const Limit& limit, std::uint8_t* mask) {
  const __m512i halves = _mm512_permutex2var_epi16(x[0], limit.places, x[1]);
  const std::uint32_t kept = _mm512_cmpge_epu16_mask(halves, limit.value);
  __builtin_memcpy(mask, &kept, 4);
}

#elif defined(__AVX2__)

using Words = __m256i;

WENGERT_INLINE __m256i first_lanes(std::int64_t count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
WENGERT_INLINE Floats load_some(const float* x, std::int64_t count) {
  return _mm256_maskload_ps(x, first_lanes(count));
}
WENGERT_INLINE void store_some(float* out, Floats x, std::int64_t count) {
  _mm256_maskstore_ps(out, first_lanes(count), x);
}
WENGERT_INLINE void store_streaming(float* out, Floats x) { _mm256_stream_ps(out, x); }
WENGERT_INLINE Floats select_bits(std::uint32_t bits, Floats x) {
  const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  const __m256i kept = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(static_cast<int>(bits)), lane), lane);
  return _mm256_and_ps(x, _mm256_castsi256_ps(kept));
}
WENGERT_INLINE Floats multiply_add(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }

WENGERT_INLINE Words words(std::uint32_t value) { return _mm256_set1_epi64x(value); }
WENGERT_INLINE Words multiply(Words a, Words b) { return _mm256_mul_epu32(a, b); }
WENGERT_INLINE Words upper(Words x) { return _mm256_srli_epi64(x, 32); }
WENGERT_INLINE Words exclusive_or(Words a, Words b) { return _mm256_xor_si256(a, b); }

constexpr int philox_registers = 2;
WENGERT_INLINE void philox_counters(std::uint64_t first, Words* x) {  // so that a shuffle of the two puts them in order
  x[0] = _mm256_add_epi64(_mm256_set1_epi64x(static_cast<long long>(first)), _mm256_setr_epi64x(0, 1, 4, 5));
  x[1] = _mm256_add_epi64(x[0], _mm256_set1_epi64x(2));
}
struct Limit {
  __m256i below;
  WENGERT_INLINE explicit Limit(std::uint32_t threshold) : below(_mm256_set1_epi32(static_cast<int>(threshold) - 1)) {}
};
WENGERT_INLINE std::uint8_t bits_of(__m256i mask) {
  return static_cast<std::uint8_t>(_mm256_movemask_ps(_mm256_castsi256_ps(mask)));
}
WENGERT_INLINE void store_kept(const Words* x, const Limit& limit, std::uint8_t* mask) {
  const __m256i eight =
      _mm256_castps_si256(_mm256_shuffle_ps(_mm256_castsi256_ps(x[0]), _mm256_castsi256_ps(x[1]), 0x88));
  mask[0] = bits_of(_mm256_cmpgt_epi32(_mm256_and_si256(eight, _mm256_set1_epi32(0xFFFF)), limit.below));
  mask[2] = bits_of(_mm256_cmpgt_epi32(_mm256_srli_epi32(eight, 16), limit.below));
}

#else

using Words = __m128i;

WENGERT_INLINE Floats load_some(const float* x, std::int64_t count) {
  const float second = count > 1 ? x[1] : 0.0F, third = count > 2 ? x[2] : 0.0F;
  return _mm_setr_ps(x[0], second, third, 0.0F);
}
WENGERT_INLINE void store_some(float* out, Floats x, std::int64_t count) {
  alignas(16) float lanes[4];
  _mm_store_ps(lanes, x);
  for (std::int64_t i = 0; i < count; ++i) out[i] = lanes[i];
}
WENGERT_INLINE void store_streaming(float* out, Floats x) { _mm_stream_ps(out, x); }
WENGERT_INLINE Floats select_bits(std::uint32_t bits, Floats x) {
  const __m128i lane = _mm_setr_epi32(1, 2, 4, 8);
  const __m128i kept = _mm_cmpeq_epi32(_mm_and_si128(_mm_set1_epi32(static_cast<int>(bits)), lane), lane);
  return _mm_and_ps(x, _mm_castsi128_ps(kept));
}
WENGERT_INLINE Floats multiply_add(Floats a, Floats b, Floats c) { return _mm_add_ps(_mm_mul_ps(a, b), c); }

WENGERT_INLINE Words words(std::uint32_t value) { return _mm_set1_epi64x(value); }
WENGERT_INLINE Words multiply(Words a, Words b) { return _mm_mul_epu32(a, b); }
WENGERT_INLINE Words upper(Words x) { return _mm_srli_epi64(x, 32); }
WENGERT_INLINE Words exclusive_or(Words a, Words b) { return _mm_xor_si128(a, b); }

constexpr int philox_registers = 4;
WENGERT_INLINE void philox_counters(std::uint64_t first, Words* x) {
  x[0] = _mm_add_epi64(_mm_set1_epi64x(static_cast<long long>(first)), _mm_set_epi64x(1, 0));
  for (int r = 1; r < 4; ++r) x[r] = _mm_add_epi64(x[r - 1], _mm_set1_epi64x(2));
}
struct Limit {
  __m128i below;
  WENGERT_INLINE explicit Limit(std::uint32_t threshold) : below(_mm_set1_epi32(static_cast<int>(threshold) - 1)) {}
};
WENGERT_INLINE int bits_of(__m128i mask) { return _mm_movemask_ps(_mm_castsi128_ps(mask)); }
WENGERT_INLINE void store_kept(const Words* x, const Limit& limit, std::uint8_t* mask) {
  int low = 0, high = 0;
  for (int half = 0; half < 2; ++half) {
    const __m128i four =
        _mm_castps_si128(_mm_shuffle_ps(_mm_castsi128_ps(x[2 * half]), _mm_castsi128_ps(x[2 * half + 1]), 0x88));
    low |= bits_of(_mm_cmpgt_epi32(_mm_and_si128(four, _mm_set1_epi32(0xFFFF)), limit.below)) << (4 * half);
    high |= bits_of(_mm_cmpgt_epi32(_mm_srli_epi32(four, 16), limit.below)) << (4 * half);
  }
  mask[0] = static_cast<std::uint8_t>(low);
  mask[2] = static_cast<std::uint8_t>(high);
}

#endif

WENGERT_INLINE float sum_lanes(Floats x) {
  float lanes[width];
  store(lanes, x);
  float sum = lanes[0];
  for (std::int64_t i = 1; i < width; ++i) sum += lanes[i];
  return sum;
}

// out[p][j] = in[j][p] for 4 rows and columns, rows `in_row` and `out_row` floats apart.
WENGERT_INLINE void transpose4(const float* in, std::int64_t in_row, float* out, std::int64_t out_row) {
  __m128 row[4];
  for (int i = 0; i < 4; ++i) row[i] = _mm_loadu_ps(in + i * in_row);
  _MM_TRANSPOSE4_PS(row[0], row[1], row[2], row[3]);
  for (int i = 0; i < 4; ++i) _mm_storeu_ps(out + i * out_row, row[i]);
}

// The same for a square of `transposed` rows and columns.
#if defined(__AVX2__)
constexpr std::int64_t transposed = 8;
WENGERT_INLINE void transpose(const float* in, std::int64_t in_row, float* out, std::int64_t out_row) {
  __m256 row[8], pair[8], quad[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) row[i] = _mm256_loadu_ps(in + i * in_row);
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    pair[i] = _mm256_unpacklo_ps(row[i], row[i + 1]);
    pair[i + 1] = _mm256_unpackhi_ps(row[i], row[i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    quad[i] = _mm256_shuffle_ps(pair[i], pair[i + 2], 0x44);
    quad[i + 1] = _mm256_shuffle_ps(pair[i], pair[i + 2], 0xEE);
    quad[i + 2] = _mm256_shuffle_ps(pair[i + 1], pair[i + 3], 0x44);
    quad[i + 3] = _mm256_shuffle_ps(pair[i + 1], pair[i + 3], 0xEE);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    _mm256_storeu_ps(out + i * out_row, _mm256_permute2f128_ps(quad[i], quad[i + 4], 0x20));
    _mm256_storeu_ps(out + (i + 4) * out_row, _mm256_permute2f128_ps(quad[i], quad[i + 4], 0x31));
  }
}
#else
constexpr std::int64_t transposed = 4;
WENGERT_INLINE void transpose(const float* in, std::int64_t in_row, float* out, std::int64_t out_row) {
  transpose4(in, in_row, out, out_row);
}
#endif

// Brings `floats` floats from `x` on towards the second-level cache. Runs of lines have no branch between them: where
// the processor guesses wrongly that a loop goes on, it fetches what nobody needs.
WENGERT_INLINE void prefetch(const float* x, std::int64_t floats) {
  constexpr std::int64_t line = 16, run = 16 * line;
  const auto fetch = [](const float* at)
                         WENGERT_LAMBDA { _mm_prefetch(reinterpret_cast<const char*>(at), _MM_HINT_T1); };
  std::int64_t i = 0;
  for (; i + run <= floats; i += run) {
#pragma GCC unroll 16
    for (std::int64_t j = 0; j < run; j += line) fetch(x + i + j);
  }
  for (; i < floats; i += line) fetch(x + i);
}

// Calls body(j, load, store) for every register of n floats; the last one may be part of a register. Whole and part
// take the same arithmetic, so an element's bits do not depend on where a range ends.
template <class Body>
WENGERT_INLINE void for_each_register(std::int64_t n, Body body) {
  std::int64_t j = 0;
  for (; j + width <= n; j += width)
    body(
        j, [](const float* x) WENGERT_LAMBDA { return load(x); },
        [](float* out, Floats x) WENGERT_LAMBDA { store(out, x); });
  if (const std::int64_t rest = n - j; rest > 0)
    body(
        j, [rest](const float* x) WENGERT_LAMBDA { return load_some(x, rest); },
        [rest](float* out, Floats x) WENGERT_LAMBDA { store_some(out, x, rest); });
}

}  // namespace
}  // namespace wengert::xsimd_backend
