// Included by arch.cpp only. The registers of this architecture, and the few primitives that xsimd does not have: loads and
// stores of part of a register, stores that bypass the caches, selection by mask bits, and Philox's 32 x 32 -> 64 bit product.

namespace wengert::xsimd_backend {
namespace {

using Arch = WENGERT_XSIMD_ARCH;
using Floats = xsimd::batch<float, Arch>;
using Doubles = xsimd::batch<double, Arch>;
constexpr std::int64_t width = static_cast<std::int64_t>(Floats::size);

#define WENGERT_INLINE inline __attribute__((always_inline))

WENGERT_INLINE Floats load(const float* x) { return Floats::load_unaligned(x); }
WENGERT_INLINE void store(float* out, Floats x) { x.store_unaligned(out); }

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

WENGERT_INLINE Words words(std::uint32_t value) { return _mm512_set1_epi32(static_cast<int>(value)); }
WENGERT_INLINE Words load_words(const std::uint32_t* x) { return _mm512_loadu_si512(x); }
WENGERT_INLINE Words exclusive_or(Words a, Words b) { return _mm512_xor_si512(a, b); }
// high:low = a * b in every lane.
WENGERT_INLINE void multiply(Words a, Words b, Words& high, Words& low) {
  const Words even = _mm512_mul_epu32(a, b), odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), b);
  low = _mm512_mask_shuffle_epi32(even, 0xAAAA, odd, _MM_PERM_CDAB);
  high = _mm512_mask_shuffle_epi32(odd, 0x5555, even, _MM_PERM_CDAB);
}
// Bit i is 1 when half i (the low or the high 16 bits of lane i) exceeds `limit`, which is >= -1.
WENGERT_INLINE std::uint32_t low_above(Words x, Words limit) {
  return _mm512_cmpgt_epi32_mask(_mm512_and_si512(x, _mm512_set1_epi32(0xFFFF)), limit);
}
WENGERT_INLINE std::uint32_t high_above(Words x, Words limit) { return _mm512_cmpgt_epi32_mask(_mm512_srli_epi32(x, 16), limit); }

#elif defined(__AVX2__)

using Words = __m256i;

WENGERT_INLINE __m256i first_lanes(std::int64_t count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
WENGERT_INLINE Floats load_some(const float* x, std::int64_t count) { return _mm256_maskload_ps(x, first_lanes(count)); }
WENGERT_INLINE void store_some(float* out, Floats x, std::int64_t count) { _mm256_maskstore_ps(out, first_lanes(count), x); }
WENGERT_INLINE void store_streaming(float* out, Floats x) { _mm256_stream_ps(out, x); }
WENGERT_INLINE Floats select_bits(std::uint32_t bits, Floats x) {
  const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  const __m256i kept = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(static_cast<int>(bits)), lane), lane);
  return _mm256_and_ps(x, _mm256_castsi256_ps(kept));
}

WENGERT_INLINE Words words(std::uint32_t value) { return _mm256_set1_epi32(static_cast<int>(value)); }
WENGERT_INLINE Words load_words(const std::uint32_t* x) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x)); }
WENGERT_INLINE Words exclusive_or(Words a, Words b) { return _mm256_xor_si256(a, b); }
WENGERT_INLINE void multiply(Words a, Words b, Words& high, Words& low) {
  const Words even = _mm256_mul_epu32(a, b), odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), b);
  low = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA);
  high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA);
}
WENGERT_INLINE std::uint32_t bits_of(Words mask) { return static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(mask))); }
WENGERT_INLINE std::uint32_t low_above(Words x, Words limit) {
  return bits_of(_mm256_cmpgt_epi32(_mm256_and_si256(x, _mm256_set1_epi32(0xFFFF)), limit));
}
WENGERT_INLINE std::uint32_t high_above(Words x, Words limit) { return bits_of(_mm256_cmpgt_epi32(_mm256_srli_epi32(x, 16), limit)); }

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

WENGERT_INLINE Words words(std::uint32_t value) { return _mm_set1_epi32(static_cast<int>(value)); }
WENGERT_INLINE Words load_words(const std::uint32_t* x) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(x)); }
WENGERT_INLINE Words exclusive_or(Words a, Words b) { return _mm_xor_si128(a, b); }
WENGERT_INLINE void multiply(Words a, Words b, Words& high, Words& low) {
  const Words even = _mm_mul_epu32(a, b), odd = _mm_mul_epu32(_mm_srli_epi64(a, 32), b);
  const Words low_half = _mm_set1_epi64x(0xFFFFFFFF);
  low = _mm_or_si128(_mm_and_si128(even, low_half), _mm_slli_epi64(odd, 32));
  high = _mm_or_si128(_mm_srli_epi64(even, 32), _mm_andnot_si128(low_half, odd));
}
WENGERT_INLINE std::uint32_t bits_of(Words mask) { return static_cast<std::uint32_t>(_mm_movemask_ps(_mm_castsi128_ps(mask))); }
WENGERT_INLINE std::uint32_t low_above(Words x, Words limit) {
  return bits_of(_mm_cmpgt_epi32(_mm_and_si128(x, _mm_set1_epi32(0xFFFF)), limit));
}
WENGERT_INLINE std::uint32_t high_above(Words x, Words limit) { return bits_of(_mm_cmpgt_epi32(_mm_srli_epi32(x, 16), limit)); }

#endif

// Brings `floats` floats from `x` on towards the second-level cache.
WENGERT_INLINE void prefetch(const float* x, std::int64_t floats) {
  for (std::int64_t i = 0; i < floats; i += 16) _mm_prefetch(reinterpret_cast<const char*>(x + i), _MM_HINT_T1);
}

// Calls body(j, load, store) for every register of n floats; the last one may be part of a register. Whole and part take the
// same arithmetic, so an element's bits do not depend on where a range ends.
template <class Body>
WENGERT_INLINE void for_each_register(std::int64_t n, Body body) {
  std::int64_t j = 0;
  for (; j + width <= n; j += width)
    body(j, [](const float* x) WENGERT_LAMBDA { return load(x); }, [](float* out, Floats x) WENGERT_LAMBDA { store(out, x); });
  if (const std::int64_t rest = n - j; rest > 0)
    body(j, [rest](const float* x) WENGERT_LAMBDA { return load_some(x, rest); },
         [rest](float* out, Floats x) WENGERT_LAMBDA { store_some(out, x, rest); });
}

}  // namespace
}  // namespace wengert::xsimd_backend
