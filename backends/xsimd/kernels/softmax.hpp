// Included by arch.cpp only. Softmax and what cross-entropy needs, a row at a time. Sums are formed lane by lane in a
// fixed order: a row's bits depend on the architecture, not on threads.

namespace wengert::xsimd_backend {
namespace {

// Sum of exp(x - shift), which `keep(j, put, e)` may also store.
template <class Keep>
WENGERT_INLINE float sum_exp(const float* x, float shift, std::int64_t n, Keep keep) {
  const Floats offset(shift);
  Floats sum(0.0F);
  std::int64_t j = 0;
  for (; j + width <= n; j += width) {
    const Floats e = xsimd::exp(load(x + j) - offset);
    sum = sum + e;
    keep(j, e, width);
  }
  if (const std::int64_t rest = n - j; rest > 0) {
    const Floats e = select_bits((1U << rest) - 1, xsimd::exp(load_some(x + j, rest) - offset));
    sum = sum + e;
    keep(j, e, rest);
  }
  return sum_lanes(sum);
}

void log_sum_exp(const float* x, std::int64_t n, float* norm) {
  norm[0] = max_row(x, n);
  norm[1] = __builtin_logf(sum_exp(x, norm[0], n, [](std::int64_t, Floats, std::int64_t) WENGERT_LAMBDA {}));
}

void softmax_row(const float* x, bool log, float* out, std::int64_t n) {
  const float shift = max_row(x, n);
  if (log) {
    const float total = __builtin_logf(sum_exp(x, shift, n, [](std::int64_t, Floats, std::int64_t) WENGERT_LAMBDA {}));
    const Floats offset(shift), rest(total);
    return map(x, out, n, [=](Floats a) { return (a - offset) - rest; });
  }
  const float total = sum_exp(x, shift, n, [out](std::int64_t j, Floats e, std::int64_t count) WENGERT_LAMBDA {
    if (count == width)
      store(out + j, e);
    else
      store_some(out + j, e, count);
  });
  const Floats divisor(total);
  map(out, out, n, [=](Floats a) { return a / divisor; });
}

float sum_shifted(const float* x, float shift, std::int64_t n) {
  return row_tree_sum<float>(n, [x, shift](std::int64_t i) WENGERT_LAMBDA { return x[i] - shift; });
}

void softmax_grad_row(const float* x, const float* norm, float each, float grad, float* out, std::int64_t n) {
  const Floats shift(norm[0]), log_sum(norm[1]), share(each), factor(grad);
  map(x, out, n, [=](Floats a) { return (xsimd::exp((a - shift) - log_sum) - share) * factor; });
}

}  // namespace
}  // namespace wengert::xsimd_backend
