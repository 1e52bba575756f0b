// Included by arch.cpp only. The embedding stack: random bits, the fused forward, sums of rows.

namespace wengert::xsimd_backend {
namespace {

// --- Philox4x32-10: 16 counters at a time make the bits of 128 elements (docs/bits.md) ---

constexpr int group_registers = static_cast<int>(16 / width);

// The bits of `Groups` consecutive groups of 128 elements. Several at a time, because a round waits for the last.
template <int Groups>
WENGERT_INLINE void draw(const Drawing& drawing, std::int64_t group, std::uint8_t* mask) {
  constexpr int registers = Groups * group_registers;
  Words c0[registers], c1[registers], c2[registers], c3[registers];
  alignas(64) std::uint32_t low[16 * Groups], high[16 * Groups];
  const std::uint64_t first = drawing.base + 16 * static_cast<std::uint64_t>(group);
  for (int i = 0; i < 16 * Groups; ++i) {
    low[i] = static_cast<std::uint32_t>(first + static_cast<std::uint64_t>(i));
    high[i] = static_cast<std::uint32_t>((first + static_cast<std::uint64_t>(i)) >> 32);
  }
#pragma GCC unroll 8
  for (int r = 0; r < registers; ++r) {
    c0[r] = load_words(low + r * width);
    c1[r] = load_words(high + r * width);
    c2[r] = words(static_cast<std::uint32_t>(drawing.stream));
    c3[r] = words(static_cast<std::uint32_t>(drawing.stream >> 32));
  }
  const Words m0 = words(0xD2511F53U), m1 = words(0xCD9E8D57U);
  auto k0 = static_cast<std::uint32_t>(drawing.seed), k1 = static_cast<std::uint32_t>(drawing.seed >> 32);
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9U, k1 += 0xBB67AE85U) {
    const Words key0 = words(k0), key1 = words(k1);
#pragma GCC unroll 8
    for (int r = 0; r < registers; ++r) {
      Words high0, low0, high1, low1;
      multiply(c0[r], m0, high0, low0);
      multiply(c2[r], m1, high1, low1);
      c0[r] = exclusive_or(exclusive_or(high1, c1[r]), key0);
      c1[r] = low1;
      c2[r] = exclusive_or(exclusive_or(high0, c3[r]), key1);
      c3[r] = low0;
    }
  }
  const Words limit = words(drawing.threshold - 1);
#pragma GCC unroll 2
  for (int g = 0; g < Groups; ++g) {
#pragma GCC unroll 4
    for (int w = 0; w < 4; ++w) {
      const Words* word = (w == 0 ? c0 : w == 1 ? c1 : w == 2 ? c2 : c3) + g * group_registers;
      std::uint32_t low_bits = 0, high_bits = 0;
#pragma GCC unroll 4
      for (int r = 0; r < group_registers; ++r) {
        low_bits |= low_above(word[r], limit) << (r * static_cast<int>(width));
        high_bits |= high_above(word[r], limit) << (r * static_cast<int>(width));
      }
      const std::uint32_t both = low_bits | high_bits << 16;
      __builtin_memcpy(mask + 16 * g + 4 * w, &both, 4);
    }
  }
}

// Groups [begin, end) of the mask.
WENGERT_INLINE void draw_groups(const Drawing& drawing, std::int64_t begin, std::int64_t end, std::uint8_t* mask) {
  for (; begin + 2 <= end; begin += 2) draw<2>(drawing, begin, mask + 16 * begin);
  if (begin < end) draw<1>(drawing, begin, mask + 16 * begin);
}

void keep_mask(const Drawing& drawing, std::int64_t begin, std::int64_t end, std::uint8_t* mask) { draw_groups(drawing, begin, end, mask); }

// Bits of elements e, ..., e + count - 1 (count <= 16), reading no byte that holds none of them. `Even`: e is a multiple of
// the register width.
template <bool Even>
WENGERT_INLINE std::uint32_t bits_at(const std::uint8_t* mask, std::int64_t e, std::int64_t count) {
  const std::uint8_t* byte = mask + e / 8;
  if constexpr (Even) {
    if (width == 16) {
      std::uint16_t two;
      __builtin_memcpy(&two, byte, 2);  // the mask ends with a whole group
      return two;
    }
    return static_cast<std::uint32_t>(*byte) >> (e % 8);
  } else {
    const int shift = static_cast<int>(e % 8);
    std::uint32_t found = byte[0];
    if (shift + count > 8) found |= static_cast<std::uint32_t>(byte[1]) << 8;
    if (shift + count > 16) found |= static_cast<std::uint32_t>(byte[2]) << 16;
    return found >> shift;
  }
}

template <bool Even>
void apply_mask_from(const float* x, const std::uint8_t* mask, float scale, float* out, std::int64_t begin, std::int64_t end) {
  const Floats factor(scale);
  for_each_register(end - begin, [&](std::int64_t j, auto get, auto put) WENGERT_LAMBDA {
    const std::int64_t e = begin + j, count = end - e < width ? end - e : width;
    put(out + e, select_bits(bits_at<Even>(mask, e, count), get(x + e) * factor));
  });
}

void apply_mask(const float* x, const std::uint8_t* mask, float scale, float* out, std::int64_t begin, std::int64_t end) {
  if (begin % width == 0)
    apply_mask_from<true>(x, mask, scale, out, begin, end);
  else
    apply_mask_from<false>(x, mask, scale, out, begin, end);
}

// --- The fused forward: gather, add, drop and store, a row at a time; the bits are drawn just before they are needed ---

constexpr std::int64_t rows_ahead = 12;

template <bool Masked, bool Even, bool Stream>
void embed_rows(const Embed& args, std::int64_t begin, std::int64_t end) {
  const std::int64_t d = args.d;
  const Floats factor(args.drawing.scale);
  std::int64_t drawn = begin * d / 128;
  const std::int64_t last = (end * d + 127) / 128;
  std::int64_t at = args.period == 0 ? 0 : begin % args.period;
  for (std::int64_t i = begin; i < end; ++i) {
    if (i + rows_ahead < end) prefetch(args.tokens + args.ids[i + rows_ahead] * d, d);
    if constexpr (Masked) {
      const std::int64_t needed = ((i + 1) * d + 127) / 128;
      if (drawn < needed) {
        const std::int64_t until = (needed - drawn) % 2 == 1 && needed < last ? needed + 1 : needed;
        draw_groups(args.drawing, drawn, until, args.mask);
        drawn = until;
      }
    }
    const float* token = args.tokens + args.ids[i] * d;
    const float* position = args.positions ? args.positions + (args.position_ids ? args.position_ids[at] : args.start + at) * d : nullptr;
    if (++at == args.period) at = 0;
    float* out = args.out + i * d;
    for_each_register(d, [&](std::int64_t j, auto get, auto put) WENGERT_LAMBDA {
      Floats x = get(token + j);
      if (position) x = x + get(position + j);
      if constexpr (Masked) {
        const std::int64_t count = d - j < width ? d - j : width;
        x = select_bits(bits_at<Even>(args.mask, i * d + j, count), x * factor);
      }
      if constexpr (Stream)
        store_streaming(out + j, x);
      else
        put(out + j, x);
    });
  }
  if constexpr (Stream) _mm_sfence();
}

void embed(const Embed& args, std::int64_t begin, std::int64_t end) {
  const bool even = args.d % width == 0;
  const bool stream = args.stream && even && reinterpret_cast<std::uintptr_t>(args.out) % 64 == 0;
  if (!args.mask) return stream ? embed_rows<false, true, true>(args, begin, end) : embed_rows<false, true, false>(args, begin, end);
  if (!even) return embed_rows<true, false, false>(args, begin, end);
  return stream ? embed_rows<true, true, true>(args, begin, end) : embed_rows<true, true, false>(args, begin, end);
}

// --- Sums of rows: the gradients of both tables ---

template <bool Masked, bool Even>
void sum_masked_rows(const SumRows& args, std::int64_t begin, std::int64_t end) {
  const std::int64_t d = args.d;
  const Floats factor(args.scale);
  for (std::int64_t i = begin; i < end; ++i) {
    const std::int64_t* order = args.order ? args.order + args.starts[i] : nullptr;
    const std::int64_t terms = args.order ? args.starts[i + 1] - args.starts[i] : args.terms;
    if (order) {  // the order is ascending only within a sum: the hardware cannot guess the next row
      const std::int64_t ahead = args.starts[i] + 8;
      if (ahead < args.starts[end]) prefetch(args.rows + args.order[ahead] * d, d);
    }
    float* out = args.out + i * d;
    for_each_register(d, [&](std::int64_t j, auto get, auto put) WENGERT_LAMBDA {
      const std::int64_t count = d - j < width ? d - j : width;
      const auto term = [&](std::int64_t k) WENGERT_LAMBDA {
        const std::int64_t row = order ? order[k] : i + k * args.stride;
        Floats x = get(args.rows + row * d + j);
        if constexpr (Masked) x = select_bits(bits_at<Even>(args.mask, row * d + j, count), x * factor);
        return x;
      };
      put(out + j, terms == 0 ? Floats(0.0F) : tree_sum(terms, term));
    });
  }
}

void sum_rows(const SumRows& args, std::int64_t begin, std::int64_t end) {
  if (begin == end) return;
  if (!args.mask) return sum_masked_rows<false, true>(args, begin, end);
  if (args.d % width == 0) return sum_masked_rows<true, true>(args, begin, end);
  return sum_masked_rows<true, false>(args, begin, end);
}

}  // namespace
}  // namespace wengert::xsimd_backend
