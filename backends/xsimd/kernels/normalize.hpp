// Included by arch.cpp only. Layer norm, a row at a time, and its gradients. Sums are formed lane by lane in a fixed
// order: a row's bits depend on the architecture, not on threads.

namespace wengert::xsimd_backend {
namespace {

// The first 0 < count <= width lanes; +0 elsewhere.
WENGERT_INLINE Floats first_of(Floats x, std::int64_t count) {
  return count == width ? x : select_bits((1U << count) - 1, x);
}

// The sum of term(j, load, count) over every register of a row; terms beyond the row are not counted. Four sums at a
// time, because an addition waits for the last.
template <class Term>
WENGERT_INLINE float sum_registers(std::int64_t n, Term term) {
  const auto whole = [](const float* x) WENGERT_LAMBDA { return load(x); };
  Floats sums[4] = {Floats(0.0F), Floats(0.0F), Floats(0.0F), Floats(0.0F)};
  std::int64_t j = 0;
  for (; j + 4 * width <= n; j += 4 * width) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) sums[i] = sums[i] + term(j + i * width, whole);
  }
  for (; j + width <= n; j += width) sums[0] = sums[0] + term(j, whole);
  if (const std::int64_t rest = n - j; rest > 0)
    sums[1] = sums[1] + first_of(term(j, [rest](const float* x) WENGERT_LAMBDA { return load_some(x, rest); }), rest);
  return sum_lanes((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

void normalize_rows(const Normalize& args, std::int64_t begin, std::int64_t end) {
  const std::int64_t n = args.n;
  const float count = static_cast<float>(n);
  for (std::int64_t row = begin; row < end; ++row) {
    const float* x = args.x + row * n;
    float *out = args.out + row * n, *stats = args.stats + 2 * row;
    const Floats first(x[0]);
    stats[0] = sum_registers(n, [=](std::int64_t j, auto get) WENGERT_LAMBDA { return get(x + j) - first; }) / count;
    const Floats mean(stats[0]);
    const float squares = sum_registers(n, [=](std::int64_t j, auto get) WENGERT_LAMBDA {
      const Floats deviation = (get(x + j) - first) - mean;
      return deviation * deviation;
    });
    stats[1] = 1.0F / __builtin_sqrtf(squares / count + args.eps);
    const Floats rstd(stats[1]);
    const float *weight = args.weight, *bias = args.bias;
    for_each_register(n, [&](std::int64_t j, auto get, auto put) WENGERT_LAMBDA {
      Floats y = ((get(x + j) - first) - mean) * rstd;
      if (weight) y = y * get(weight + j);
      if (bias) y = y + get(bias + j);
      put(out + j, y);
    });
  }
}

// Rows of one block: what they add to the gradients of weight and bias, and the gradient of x.
void normalize_rows_backward(const NormalizeBackward& args, std::int64_t begin, std::int64_t end, float* to_weight,
                             float* to_bias) {
  const std::int64_t n = args.n;
  const float share = 1.0F / static_cast<float>(n);
  for (float* sums : {to_weight, to_bias})
    if (sums) for_each_register(n, [=](std::int64_t j, auto, auto put) WENGERT_LAMBDA { put(sums + j, Floats(0.0F)); });
  for (std::int64_t row = begin; row < end; ++row) {
    const float *x = args.x + row * n, *g = args.grad + row * n, *weight = args.weight;
    const Floats first(x[0]), mean(args.stats[2 * row]), rstd(args.stats[2 * row + 1]);
    const auto normal = [=](std::int64_t j, auto get) WENGERT_LAMBDA { return ((get(x + j) - first) - mean) * rstd; };
    const auto scaled = [=](std::int64_t j, auto get)
                            WENGERT_LAMBDA { return weight ? get(g + j) * get(weight + j) : get(g + j); };
    if (to_weight || to_bias)
      for_each_register(n, [&](std::int64_t j, auto get, auto put) WENGERT_LAMBDA {
        if (to_weight) put(to_weight + j, get(to_weight + j) + get(g + j) * normal(j, get));
        if (to_bias) put(to_bias + j, get(to_bias + j) + get(g + j));
      });
    if (!args.out) continue;
    const Floats mean_scaled(share * sum_registers(n, scaled));
    const Floats mean_product(share * sum_registers(n, [&](std::int64_t j, auto get)
                                                           WENGERT_LAMBDA { return scaled(j, get) * normal(j, get); }));
    float* out = args.out + row * n;
    for_each_register(n, [&](std::int64_t j, auto get, auto put) WENGERT_LAMBDA {
      put(out + j, ((scaled(j, get) - mean_scaled) - normal(j, get) * mean_product) * rstd);
    });
  }
}

// d softmax: y (g - sum(g y)); d log softmax: g - exp(y) sum(g).
void softmax_backward_row(const float* g, const float* y, bool log, float* out, std::int64_t n) {
  if (log) {
    const Floats total(sum_registers(n, [=](std::int64_t j, auto get) WENGERT_LAMBDA { return get(g + j); }));
    return for_each_register(n, [=](std::int64_t j, auto get, auto put)
                                    WENGERT_LAMBDA { put(out + j, get(g + j) - xsimd::exp(get(y + j)) * total); });
  }
  const Floats total(
      sum_registers(n, [=](std::int64_t j, auto get) WENGERT_LAMBDA { return get(g + j) * get(y + j); }));
  for_each_register(
      n, [=](std::int64_t j, auto get, auto put) WENGERT_LAMBDA { put(out + j, (get(g + j) - total) * get(y + j)); });
}

void where(const float* condition, const float* a, const float* b, float* out, std::int64_t n) {
  const Floats zero(0.0F);
  for_each_register(n, [=](std::int64_t j, auto get, auto put) WENGERT_LAMBDA {
    put(out + j, xsimd::select(get(condition + j) == zero, get(b + j), get(a + j)));
  });
}

}  // namespace
}  // namespace wengert::xsimd_backend
