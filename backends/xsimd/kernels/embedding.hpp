// Included by arch.cpp only. The embedding stack: masks, the fused forward, sums of rows.

namespace wengert::xsimd_backend {
namespace {

// Bits of elements e, ..., e + count - 1 (count <= 16), reading no byte that holds none of them. `Even`: e is a
// multiple of the register width.
template <bool Even>
WENGERT_INLINE std::uint32_t bits_at(const std::uint8_t* mask, std::int64_t e, std::int64_t count) {
  const std::uint8_t* byte = mask + (e >> 3);
  if constexpr (Even) {
    if (width == 16) {
      std::uint16_t two;
      __builtin_memcpy(&two, byte, 2);  // the mask ends with a whole group
      return two;
    }
    return width == 8 ? *byte : static_cast<std::uint32_t>(*byte) >> (e & 7);
  } else {
    const int shift = static_cast<int>(e & 7);
    std::uint32_t found = byte[0];
    if (shift + count > 8) found |= static_cast<std::uint32_t>(byte[1]) << 8;
    if (shift + count > 16) found |= static_cast<std::uint32_t>(byte[2]) << 16;
    return found >> shift;
  }
}

template <bool Even>
void apply_mask_from(const float* x, const std::uint8_t* mask, float scale, float* out, std::int64_t begin,
                     std::int64_t end) {
  const Floats factor(scale);
  for_each_register(end - begin, [&](std::int64_t j, auto get, auto put) WENGERT_LAMBDA {
    const std::int64_t e = begin + j, count = end - e < width ? end - e : width;
    put(out + e, select_bits(bits_at<Even>(mask, e, count), get(x + e) * factor));
  });
}

void apply_mask(const float* x, const std::uint8_t* mask, float scale, float* out, std::int64_t begin,
                std::int64_t end) {
  if (begin % width == 0)
    apply_mask_from<true>(x, mask, scale, out, begin, end);
  else
    apply_mask_from<false>(x, mask, scale, out, begin, end);
}

void drop(const Drawing& drawing, const float* x, std::int64_t n, std::uint8_t* mask, float* out, std::int64_t begin,
          std::int64_t end) {
  const Philox philox(drawing);
  for (std::int64_t group = begin; group < end; group += groups_together) {
    const std::int64_t until = group + groups_together < end ? group + groups_together : end;
    philox.draw(group, until, mask);
    apply_mask_from<true>(x, mask, drawing.scale, out, 128 * group, 128 * until < n ? 128 * until : n);
  }
}

// --- The fused forward: gather, add, drop and store. Where elements are dropped, a row is taken in stripes: the bits
// of one are drawn just before, and as much of a coming row is fetched, so that the processor computes the one while it
// waits for the other. Stripes have no branches inside, for the same reason as `prefetch`. ---

constexpr std::int64_t rows_ahead = 8;
constexpr std::int64_t stripe = 128 * groups_together, stripe_registers = stripe / width;

template <bool Added, bool Masked, bool Even, bool Stream>
void embed_rows(const Embed& args, std::int64_t begin, std::int64_t end) {
  const std::int64_t d = args.d, last = (end * d + 127) / 128;
  const Floats factor(args.drawing.scale);
  const Philox philox(args.drawing);
  std::int64_t drawn = begin * d / 128;
  const auto draw_until = [&](std::int64_t element) WENGERT_LAMBDA {
    const std::int64_t needed = (element + 127) / 128;
    if (drawn >= needed) return;
    const std::int64_t together = drawn + groups_together;
    const std::int64_t until = together < needed || last < together ? needed : together;
    philox.draw(drawn, until, args.mask);
    drawn = until;
  };
  std::int64_t at = Added ? begin % args.period : 0;
  for (std::int64_t i = begin; i < end; ++i) {
    const float* token = args.tokens + args.ids[i] * d;
    const float* coming = args.tokens + args.ids[i + rows_ahead < end ? i + rows_ahead : i] * d;
    const float* position =
        Added ? args.positions + (args.position_ids ? args.position_ids[at] : args.start + at) * d : nullptr;
    if (Added && ++at == args.period) at = 0;
    float* out = args.out + i * d;
    const auto step = [&](std::int64_t j, std::int64_t count, auto get, auto put) WENGERT_LAMBDA {
      Floats x = get(token + j);
      if constexpr (Added) x = x + get(position + j);
      if constexpr (Masked) x = select_bits(bits_at<Even>(args.mask, i * d + j, count), x * factor);
      if constexpr (Stream)
        store_streaming(out + j, x);
      else
        put(out + j, x);
    };
    std::int64_t from = 0;
    for (; from + stripe <= d; from += stripe) {
      if (Masked) prefetch(coming + from, stripe);
      if constexpr (Masked) draw_until(i * d + from + stripe);
#pragma GCC unroll 16
      for (std::int64_t r = 0; r < stripe_registers; ++r)
        step(
            from + r * width, width, [](const float* x) WENGERT_LAMBDA { return load(x); },
            [](float* to, Floats x) WENGERT_LAMBDA { store(to, x); });
    }
    if (!Masked) prefetch(coming, d);
    if (from == d) continue;
    if (Masked) prefetch(coming + from, d - from);
    if constexpr (Masked) draw_until(i * d + d);
    for_each_register(d - from, [&](std::int64_t r, auto get, auto put) WENGERT_LAMBDA {
      const std::int64_t j = from + r;
      step(j, d - j < width ? d - j : width, get, put);
    });
  }
  if constexpr (Stream) _mm_sfence();
}

template <bool Added, bool Masked>
void embed_as(const Embed& args, std::int64_t begin, std::int64_t end) {
  const bool even = args.d % width == 0;
  if (Masked && !even) return embed_rows<Added, Masked, false, false>(args, begin, end);
  if (args.stream && even && reinterpret_cast<std::uintptr_t>(args.out) % 64 == 0)
    return embed_rows<Added, Masked, true, true>(args, begin, end);
  embed_rows<Added, Masked, true, false>(args, begin, end);
}

void embed(const Embed& args, std::int64_t begin, std::int64_t end) {
  if (!args.positions) return embed_as<false, false>(args, begin, end);
  if (!args.mask) return embed_as<true, false>(args, begin, end);
  embed_as<true, true>(args, begin, end);
}

void prefetch_row(const float* row, std::int64_t d) { prefetch(row, d); }

// --- Sums of rows: the gradients of both tables ---

// `count` floats from element e on, dropped ones as +0.
template <bool Masked, bool Even, class Get>
WENGERT_INLINE Floats kept_value(const float* rows, const std::uint8_t* mask, Floats factor, std::int64_t e,
                                 std::int64_t count, Get get) {
  if constexpr (!Masked) return get(rows + e);
  return select_bits(bits_at<Even>(mask, e, count), get(rows + e) * factor);
}

// The same for a stripe of Count registers, from element e on.
template <int Count, bool Masked, bool Even>
WENGERT_INLINE void kept_stripe(const float* rows, const std::uint8_t* mask, Floats factor, std::int64_t e, Floats* x) {
  const float* from = rows + e;
  const std::uint8_t* bits = Masked && Even ? mask + (e >> 3) : nullptr;
  const std::int64_t rest = width < 8 ? e & 7 : 0;
#pragma GCC unroll 8
  for (int c = 0; c < Count; ++c) {
    x[c] = load(from + c * width);
    if constexpr (Masked && Even) x[c] = select_bits(bits_at<true>(bits, rest + c * width, width), x[c] * factor);
    if constexpr (Masked && !Even) x[c] = select_bits(bits_at<false>(mask, e + c * width, width), x[c] * factor);
  }
}

template <bool Masked, bool Even>
void sum_masked_rows(const SumRows& args, std::int64_t begin, std::int64_t end) {
  const std::int64_t d = args.d;
  const Floats factor(args.scale);
  const float* rows = args.rows;
  const std::uint8_t* mask = args.mask;
  for (std::int64_t i = begin; i < end; ++i) {
    const std::int64_t which = args.select ? args.select[i] : i;
    const std::int64_t* order = args.order ? args.order + args.starts[which] : nullptr;
    const std::int64_t terms = args.order ? args.starts[which + 1] - args.starts[which] : args.terms;
    if (order) {  // the order is ascending only within a sum: the hardware cannot guess the next row
      const std::int64_t ahead = args.starts[which] + rows_ahead;
      if (ahead < args.starts[args.sums]) prefetch(rows + args.order[ahead] * d, d);
    }
    float* out = args.out + which * d;
    const auto element = [&](std::int64_t k)
                             WENGERT_LAMBDA { return (order ? order[k] : which + k * args.stride) * d; };
    for_each_stripe(
        d,
        [&](std::int64_t j, auto count) WENGERT_LAMBDA {
          constexpr int registers = decltype(count)::value;
          Floats sum[registers];
          tree_sums<registers>(
              terms,
              [&](std::int64_t k, Floats* x)
                  WENGERT_LAMBDA { kept_stripe<registers, Masked, Even>(rows, mask, factor, element(k) + j, x); },
              sum);
          store_stripe<registers>(out + j, sum);
        },
        [&](std::int64_t j, auto get, auto put) WENGERT_LAMBDA {
          const std::int64_t count = d - j < width ? d - j : width;
          Floats sum[1];
          tree_sums<1>(
              terms,
              [&](std::int64_t k, Floats* x)
                  WENGERT_LAMBDA { *x = kept_value<Masked, Even>(rows, mask, factor, element(k) + j, count, get); },
              sum);
          put(out + j, sum[0]);
        });
  }
}

void sum_rows(const SumRows& args, std::int64_t begin, std::int64_t end) {
  if (begin == end) return;
  if (!args.mask) return sum_masked_rows<false, true>(args, begin, end);
  if (args.d % width == 0) return sum_masked_rows<true, true>(args, begin, end);
  return sum_masked_rows<true, false>(args, begin, end);
}

// --- Both gradients in one pass over the upstream gradient: each row is a term of its position's sum, and, where its
// token occurs once in the batch, all of that token's gradient ---

template <bool Masked, bool Even, bool Stream>
void split_masked_rows(const SplitRows& args, std::int64_t begin, std::int64_t end) {
  const std::int64_t d = args.d, batch = args.batch, length = args.length;
  const Floats factor(args.scale);
  const float* rows = args.rows;
  const std::uint8_t* mask = args.mask;
  for (std::int64_t t = begin; t < end; ++t) {
    float* sums = args.positions + t * d;
    for_each_stripe(
        d,
        [&](std::int64_t j, auto count) WENGERT_LAMBDA {
          constexpr int registers = decltype(count)::value;
          Floats sum[registers];
          tree_sums<registers>(
              batch,
              [&](std::int64_t b, Floats* x) WENGERT_LAMBDA {
                const std::int64_t row = b * length + t, slot = args.slots[row], e = row * d + j;
                prefetch(rows + e + d, registers * width);  // the next position of this sequence
                kept_stripe<registers, Masked, Even>(rows, mask, factor, e, x);
                if (slot < 0) return;
                float* to = args.tokens + slot * d + j;
#pragma GCC unroll 8
                for (int c = 0; c < registers; ++c) {
                  if constexpr (Stream)
                    store_streaming(to + c * width, x[c]);
                  else
                    store(to + c * width, x[c]);
                }
              },
              sum);
          store_stripe<registers>(sums + j, sum);
        },
        [&](std::int64_t j, auto get, auto put) WENGERT_LAMBDA {
          const std::int64_t count = d - j < width ? d - j : width;
          Floats sum[1];
          tree_sums<1>(
              batch,
              [&](std::int64_t b, Floats* x) WENGERT_LAMBDA {
                const std::int64_t row = b * length + t, slot = args.slots[row];
                *x = kept_value<Masked, Even>(rows, mask, factor, row * d + j, count, get);
                if (slot >= 0) put(args.tokens + slot * d + j, *x);
              },
              sum);
          put(sums + j, sum[0]);
        });
  }
  if constexpr (Stream) _mm_sfence();
}

void split_rows(const SplitRows& args, std::int64_t begin, std::int64_t end) {
  const bool even = args.d % width == 0;
  const bool stream = args.stream && even && reinterpret_cast<std::uintptr_t>(args.tokens) % 64 == 0;
  if (!args.mask)
    return stream ? split_masked_rows<false, true, true>(args, begin, end)
                  : split_masked_rows<false, true, false>(args, begin, end);
  if (!even) return split_masked_rows<true, false, false>(args, begin, end);
  return stream ? split_masked_rows<true, true, true>(args, begin, end)
                : split_masked_rows<true, true, false>(args, begin, end);
}

}  // namespace
}  // namespace wengert::xsimd_backend
