// Keep masks: drawing them and applying them.

#include <algorithm>
#include <array>
#include <cstdint>

#include "wengert/backends/reference.hpp"
#include "wengert/bits.hpp"

namespace wengert::reference {

namespace {

// The words of 64 consecutive counters, which 512 elements need. So many generators side by side, with the rounds of
// bits::philox, are loops that a compiler puts into vectors (shorter ones it unrolls instead).
struct Draw {
  static constexpr int counters = 64;
  std::uint32_t word[4][counters];

  Draw(std::uint64_t seed, std::uint64_t stream, std::uint64_t counter) {
    for (int i = 0; i < counters; ++i) {
      const std::uint64_t place = counter + static_cast<std::uint64_t>(i);
      word[0][i] = static_cast<std::uint32_t>(place);
      word[1][i] = static_cast<std::uint32_t>(place >> 32);
      word[2][i] = static_cast<std::uint32_t>(stream);
      word[3][i] = static_cast<std::uint32_t>(stream >> 32);
    }
    std::uint32_t key0 = static_cast<std::uint32_t>(seed), key1 = static_cast<std::uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round, key0 += 0x9E3779B9u, key1 += 0xBB67AE85u)
      for (int i = 0; i < counters; ++i) {
        const std::uint64_t product0 = std::uint64_t{0xD2511F53u} * word[0][i];
        const std::uint64_t product1 = std::uint64_t{0xCD9E8D57u} * word[2][i];
        word[0][i] = static_cast<std::uint32_t>(product1 >> 32) ^ word[1][i] ^ key0;
        word[1][i] = static_cast<std::uint32_t>(product1);
        word[2][i] = static_cast<std::uint32_t>(product0 >> 32) ^ word[3][i] ^ key1;
        word[3][i] = static_cast<std::uint32_t>(product0);
      }
  }
};

constexpr std::array<std::uint32_t, 16> bit = [] {
  std::array<std::uint32_t, 16> bits{};
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = 1u << i;
  return bits;
}();

// The keep bits of 16 words' low or high halves. Signed comparison and a table: what the oldest vector units can do.
std::uint32_t keep_bits(const std::uint32_t* words, int shift, std::int32_t threshold) {
  std::uint32_t keep = 0;
  for (std::size_t i = 0; i < bit.size(); ++i) {
    const auto half = static_cast<std::int32_t>((words[i] >> shift) & 0xFFFFu);
    keep |= (half >= threshold ? ~0u : 0u) & bit[i];
  }
  return keep;
}

// x and out may be the same; nothing of the mask is written.
template <class T>
void select(const T* x, const std::uint8_t* __restrict mask, T factor, std::int64_t count, T* out) {
  std::int64_t e = 0;
  for (; e + 8 <= count; e += 8) {
    const std::uint32_t byte = mask[e / 8];
    for (int i = 0; i < 8; ++i) {
      const T scaled = x[e + i] * factor;
      out[e + i] = (byte & (1u << i)) != 0 ? scaled : T(0);
    }
  }
  for (; e < count; ++e) out[e] = bits::kept(mask, e) ? x[e] * factor : T(0);
}

}  // namespace

template <class T>
void Kernels<T>::keep_mask(const Dropout& dropout, std::int64_t count, Tensor& bits) {
  const auto [seed, stream, base] = dropout.state;
  const auto threshold = static_cast<std::int32_t>(bits::keep_threshold(dropout.p));
  auto* mask = reinterpret_cast<std::uint8_t*>(write<std::int32_t>(bits));  // bytes may alias anything
  const auto end = static_cast<std::int64_t>(bits::dropout_counters(count));
  for (std::int64_t first = 0; first < end; first += Draw::counters) {
    const Draw draw(seed, stream, base + static_cast<std::uint64_t>(first));
    for (int i = 0; i < std::min<std::int64_t>(Draw::counters, end - first); i += 16)
      for (int slot = 0; slot < 8; ++slot) {
        const std::uint32_t keep = keep_bits(draw.word[slot / 2] + i, 16 * (slot % 2), threshold);
        *mask++ = static_cast<std::uint8_t>(keep);
        *mask++ = static_cast<std::uint8_t>(keep >> 8);
      }
  }
}

template <class T>
void Kernels<T>::apply_mask(const Tensor& x, const Tensor& bits, double scale, Tensor& out) {
  const T* from = read<T>(x);
  const auto* mask = reinterpret_cast<const std::uint8_t*>(read<std::int32_t>(bits));
  select(from, mask, static_cast<T>(scale), x.numel(), write<T>(out));
}

#define WENGERT_INSTANTIATE(T)                                                \
  template void Kernels<T>::keep_mask(const Dropout&, std::int64_t, Tensor&); \
  template void Kernels<T>::apply_mask(const Tensor&, const Tensor&, double, Tensor&);
WENGERT_INSTANTIATE(float)
WENGERT_INSTANTIATE(double)
#undef WENGERT_INSTANTIATE

}  // namespace wengert::reference
