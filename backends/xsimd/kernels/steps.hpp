// Included by arch.cpp only. Optimiser steps, in the order of operations of docs/bits.md.

namespace wengert::xsimd_backend {
namespace {

template <bool HasGradient>
void sgd_range(const bits::SgdScalars<float>& s, const float* gradient, float* param, float* momentum, std::int64_t n) {
  const Floats lr(s.lr), keep(s.momentum), take(s.take), decay(s.weight_decay);
  for_each_register(n, [&](std::int64_t j, auto get, auto put) WENGERT_LAMBDA {
    const Floats p = get(param + j);
    Floats g(0.0F);
    if constexpr (HasGradient) g = get(gradient + j);
    if (s.has_decay) g = g + decay * p;
    if (s.has_momentum) {
      const Floats b = keep * get(momentum + j) + take * g;
      put(momentum + j, b);
      g = s.nesterov ? g + keep * b : b;
    }
    put(param + j, p - lr * g);
  });
}

void sgd(const bits::SgdScalars<float>& scalars, const float* g, float* param, float* momentum, std::int64_t n) {
  if (g)
    sgd_range<true>(scalars, g, param, momentum, n);
  else
    sgd_range<false>(scalars, g, param, momentum, n);
}

template <bool HasGradient>
void adam_range(const bits::AdamScalars<float>& s, const float* gradient, float* param, float* m, float* v,
                std::int64_t n) {
  const Floats beta1(s.beta1), take1(s.take1), beta2(s.beta2), take2(s.take2), step(s.step), root(s.root), eps(s.eps),
      decay(s.decoupled ? s.shrink : s.weight_decay);
  for_each_register(n, [&](std::int64_t j, auto get, auto put) WENGERT_LAMBDA {
    Floats p = get(param + j);
    Floats g(0.0F);
    if constexpr (HasGradient) g = get(gradient + j);
    if (s.has_decay) {
      if (s.decoupled)
        p = p * decay;
      else
        g = g + decay * p;
    }
    const Floats first = beta1 * get(m + j) + take1 * g;
    const Floats second = beta2 * get(v + j) + take2 * (g * g);
    put(m + j, first);
    put(v + j, second);
    put(param + j, p - step * (first / (xsimd::sqrt(second) * root + eps)));
  });
}

void adam(const bits::AdamScalars<float>& scalars, const float* g, float* param, float* m, float* v, std::int64_t n) {
  if (g)
    adam_range<true>(scalars, g, param, m, v, n);
  else
    adam_range<false>(scalars, g, param, m, v, n);
}

}  // namespace
}  // namespace wengert::xsimd_backend
