// The composed attention kernel against plain loops in double, and its gradients against finite differences.

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "wengert/kernels.hpp"
#include "wengert/ops.hpp"
#include "wengert/random.hpp"
#include "wengert/tape.hpp"

namespace wg = wengert;
using wg::DType;
using wg::Tensor;

namespace {

struct Sizes {
  std::int64_t batch, heads, tq, tk, d;
};

std::vector<double> plain(const Sizes& s, const wg::Attention& options, const std::vector<double>& q,
                          const std::vector<double>& k, const std::vector<double>& v, const std::vector<double>& mask) {
  std::vector<double> out;
  for (std::int64_t b = 0; b < s.batch * s.heads; ++b)
    for (std::int64_t i = 0; i < s.tq; ++i) {
      std::vector<double> weights(static_cast<std::size_t>(s.tk));
      double total = 0;
      for (std::int64_t j = 0; j < s.tk; ++j) {
        double score = 0;
        for (std::int64_t c = 0; c < s.d; ++c)
          score += q[static_cast<std::size_t>((b * s.tq + i) * s.d + c)] *
                   k[static_cast<std::size_t>((b * s.tk + j) * s.d + c)];
        score *= options.scale;
        if (!mask.empty()) score += mask[static_cast<std::size_t>(b / s.heads * s.tk + j)];
        if (options.causal && j > i + s.tk - s.tq) score = -std::numeric_limits<double>::infinity();
        total += weights[static_cast<std::size_t>(j)] = std::exp(score);
      }
      for (std::int64_t c = 0; c < s.d; ++c) {
        double sum = 0;
        for (std::int64_t j = 0; j < s.tk; ++j)
          sum += weights[static_cast<std::size_t>(j)] / total * v[static_cast<std::size_t>((b * s.tk + j) * s.d + c)];
        out.push_back(sum);
      }
    }
  return out;
}

double dot(const Tensor& a, const std::vector<double>& b) {
  double sum = 0;
  const auto values = a.to_vector<double>();
  for (std::size_t i = 0; i < b.size(); ++i) sum += values[i] * b[i];
  return sum;
}

}  // namespace

TEST_CASE("attention: forward and gradients, causal, masked, dropped") {
  const double inf = std::numeric_limits<double>::infinity();
  for (const Sizes& s : {Sizes{1, 1, 1, 1, 1}, Sizes{2, 3, 4, 4, 5}, Sizes{2, 1, 3, 7, 2}})
    for (int variant = 0; variant < 4; ++variant) {
      CAPTURE(variant);
      CAPTURE(s.tk);
      wg::Generator generator(17);
      std::vector<Tensor> qkv{wg::randn({s.batch, s.heads, s.tq, s.d}, DType::float64, generator),
                              wg::randn({s.batch, s.heads, s.tk, s.d}, DType::float64, generator),
                              wg::randn({s.batch, s.heads, s.tk, s.d}, DType::float64, generator)};
      wg::Attention options;
      options.scale = 0.7;
      options.causal = variant == 1;
      std::vector<double> mask;
      if (variant == 2 && s.tk > 1) {
        mask.assign(static_cast<std::size_t>(s.batch * s.tk), 0.0);
        mask[1] = -inf;
        options.key_mask = wg::tensor(mask, {s.batch, s.tk});
      }
      if (variant == 3) options.dropout = {0.4, {3, 0, 0}};
      wg::Kernels& kernels = qkv[0].kernels();
      const auto forward = [&](wg::Saved& saved) {
        Tensor out = wg::empty(qkv[0].shape(), qkv[0]);
        kernels.attention(options, qkv[0], qkv[1], qkv[2], out, saved);
        return out;
      };
      wg::Saved saved;
      const Tensor out = forward(saved);
      if (variant != 3) {
        const auto expected =
            plain(s, options, qkv[0].to_vector<double>(), qkv[1].to_vector<double>(), qkv[2].to_vector<double>(), mask);
        const auto values = out.to_vector<double>();
        for (std::size_t i = 0; i < expected.size(); ++i)
          CHECK(values[i] == doctest::Approx(expected[i]).epsilon(1e-12));
      }
      const Tensor upstream = wg::randn(out.shape(), DType::float64, generator);
      std::vector<Tensor> grads;
      for (const Tensor& x : qkv) grads.push_back(wg::empty(x.shape(), x));
      kernels.attention_backward(options, upstream, qkv[0], qkv[1], qkv[2], out, saved, grads[0], grads[1], grads[2]);
      const auto weights = upstream.to_vector<double>();
      for (std::size_t input = 0; input < 3; ++input) {
        auto values = qkv[input].to_vector<double>();
        const auto analytic = grads[input].to_vector<double>();
        for (std::size_t e = 0; e < values.size(); e += 3) {
          const double value = values[e], step = 1e-5;
          double sides[2];
          for (int side = 0; side < 2; ++side) {
            values[e] = value + (side == 0 ? step : -step);
            qkv[input].copy_(wg::tensor(values, qkv[input].shape()));
            wg::Saved scratch;
            sides[side] = dot(forward(scratch), weights);
          }
          values[e] = value;
          qkv[input].copy_(wg::tensor(values, qkv[input].shape()));
          CHECK(analytic[e] == doctest::Approx((sides[0] - sides[1]) / (2 * step)).epsilon(1e-6));
        }
      }
    }
}
