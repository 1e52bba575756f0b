// Included by arch.cpp only. The embedding stack: masks, the fused forward, sums of rows.

namespace wengert::xsimd_backend {
namespace {

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
  const Philox philox(args.drawing);
  std::int64_t drawn = begin * d / 128;
  std::int64_t at = args.period == 0 ? 0 : begin % args.period;
  for (std::int64_t i = begin; i < end; ++i) {
    if (i + rows_ahead < end) prefetch(args.tokens + args.ids[i + rows_ahead] * d, d);
    if constexpr (Masked) {
      const std::int64_t needed = ((i + 1) * d + 127) / 128;
      if (drawn < needed) {
        philox.draw(drawn, needed, args.mask);
        drawn = needed;
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
