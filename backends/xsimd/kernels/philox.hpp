// Included by arch.cpp only. Philox4x32-10, as the mask bits of dropout (docs/bits.md).

namespace wengert::xsimd_backend {
namespace {

// Groups of 128 elements that are drawn together where possible: with enough registers for two, since a round waits for
// the last.
constexpr std::int64_t groups_together = width == 16 ? 2 : 1;

// One drawing with all that is the same for every counter. The round keys lie in memory, ready to be operands.
class Philox {
 public:
  WENGERT_INLINE explicit Philox(const Drawing& drawing) : base_(drawing.base), limit_(drawing.threshold) {
    auto k0 = static_cast<std::uint32_t>(drawing.seed), k1 = static_cast<std::uint32_t>(drawing.seed >> 32);
    for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9U, k1 += 0xBB67AE85U)
      keys_[2 * round] = words(k0), keys_[2 * round + 1] = words(k1);
    // Words 2 and 3 of every counter are the stream, so half of the first round is done here.
    const std::uint64_t product = std::uint64_t{0xCD9E8D57U} * static_cast<std::uint32_t>(drawing.stream);
    keys_[0] = exclusive_or(keys_[0], words(static_cast<std::uint32_t>(product >> 32)));
    keys_[1] = exclusive_or(keys_[1], words(static_cast<std::uint32_t>(drawing.stream >> 32)));
    low_ = words(static_cast<std::uint32_t>(product));
  }

  // Groups [begin, end) of 128 elements.
  WENGERT_INLINE void draw(std::int64_t begin, std::int64_t end, std::uint8_t* mask) const {
    std::int64_t group = begin;
    if constexpr (groups_together == 2)
      for (; group + 2 <= end; group += 2) draw_parts<2>(first(group), mask + 16 * group);
    for (; group < end; ++group) {
      for (int part = 0; part < 16 / counters; ++part)
        draw_parts<1>(first(group) + static_cast<std::uint64_t>(part * counters), mask + 16 * group + part);
    }
  }

 private:
  static constexpr int counters = static_cast<int>(philox_registers * width / 2);  // of a part: 8 or 16

  WENGERT_INLINE std::uint64_t first(std::int64_t group) const {
    return base_ + 16 * static_cast<std::uint64_t>(group);
  }

  template <int Parts>
  WENGERT_INLINE void draw_parts(std::uint64_t first, std::uint8_t* mask) const {
    constexpr int registers = Parts * philox_registers;
    Words c0[registers], c1[registers], c2[registers], c3[registers];
    const Words m0 = words(0xD2511F53U), m1 = words(0xCD9E8D57U);
    for (int part = 0; part < Parts; ++part)
      philox_counters(first + static_cast<std::uint64_t>(part * counters), c0 + part * philox_registers);
#pragma GCC unroll 4
    for (int r = 0; r < registers; ++r) {
      const Words product = multiply(c0[r], m0);
      c0[r] = exclusive_or(upper(c0[r]), keys_[0]);
      c1[r] = low_;
      c2[r] = exclusive_or(upper(product), keys_[1]);
      c3[r] = product;
    }
#pragma GCC unroll 9
    for (int round = 1; round < 10; ++round) {
#pragma GCC unroll 4
      for (int r = 0; r < registers; ++r) {
        const Words product0 = multiply(c0[r], m0), product1 = multiply(c2[r], m1);
        c0[r] = exclusive_or(exclusive_or(upper(product1), c1[r]), keys_[2 * round]);
        c1[r] = product1;
        c2[r] = exclusive_or(exclusive_or(upper(product0), c3[r]), keys_[2 * round + 1]);
        c3[r] = product0;
      }
    }
#pragma GCC unroll 2
    for (int part = 0; part < Parts; ++part) {
      const int r = part * philox_registers;
      store_kept(c0 + r, limit_, mask + 16 * part);
      store_kept(c1 + r, limit_, mask + 16 * part + 4);
      store_kept(c2 + r, limit_, mask + 16 * part + 8);
      store_kept(c3 + r, limit_, mask + 16 * part + 12);
    }
  }

  std::uint64_t base_;
  Words keys_[20], low_;
  Limit limit_;
};

void keep_mask(const Drawing& drawing, std::int64_t begin, std::int64_t end, std::uint8_t* mask) {
  if (drawing.threshold == 0 || drawing.threshold == 65536) {  // all or nothing
    const auto bits = static_cast<std::uint8_t>(drawing.threshold == 0 ? 0xFF : 0);
    for (std::int64_t byte = 16 * begin; byte < 16 * end; ++byte) mask[byte] = bits;
    return;
  }
  const Philox philox(drawing);
  philox.draw(begin, end, mask);
}

}  // namespace
}  // namespace wengert::xsimd_backend
