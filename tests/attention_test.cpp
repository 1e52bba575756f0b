// The attention kernels: against plain loops in double, finite differences, and one another.

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

TEST_CASE("attention: float32 of this backend against float64 of the reference, over tiles, blocks and wide heads") {
  // Queries on both sides of a tile, keys on both sides of a block of 256, heads from 1 to more than a block wide.
  for (const Sizes& s :
       {Sizes{1, 1, 49, 49, 64}, Sizes{1, 2, 97, 257, 16}, Sizes{2, 2, 20, 600, 1}, Sizes{1, 1, 300, 300, 33},
        Sizes{1, 1, 530, 513, 5}, Sizes{1, 1, 100, 256, 100}, Sizes{1, 1, 5, 300, 256}, Sizes{1, 1, 30, 40, 257}})
    for (int variant = 0; variant < 8; ++variant) {
      const bool causal = variant % 2 == 1, masked = variant / 2 % 2 == 1, dropped = variant / 4 == 1;
      CAPTURE(s.tq);
      CAPTURE(s.tk);
      CAPTURE(s.d);
      CAPTURE(variant);
      const auto run = [&](DType dtype, wg::Backend& backend) {
        const wg::BackendScope use(backend);
        wg::Generator generator(17);
        const auto random = [&](std::int64_t length) {  // the same numbers in both types
          return wg::randn({s.batch, s.heads, length, s.d}, DType::float32, generator).to(dtype);
        };
        const Tensor q = random(s.tq), k = random(s.tk), v = random(s.tk), upstream = random(s.tq);
        wg::Attention options;
        options.scale = 1 / std::sqrt(static_cast<double>(s.d));
        options.causal = causal;
        if (masked) {
          std::vector<double> mask(static_cast<std::size_t>(s.batch * s.tk));
          for (std::size_t i = 0; i < mask.size(); ++i)
            mask[i] =
                i % 5 == 2 || i < 3 ? -std::numeric_limits<double>::infinity() : 0.25 * static_cast<double>(i % 3);
          options.key_mask = wg::tensor(mask, {s.batch, s.tk}).to(dtype);
        }
        if (dropped) options.dropout = {0.3, {9, 1, 5}};
        const double nan = std::numeric_limits<double>::quiet_NaN();  // shows what is not written
        std::vector<Tensor> results;
        for (const Tensor& x : {q, q, k, v}) results.push_back(wg::full(x.shape(), nan, x));
        wg::Saved saved;
        q.kernels().attention(options, q, k, v, results[0], saved);
        q.kernels().attention_backward(options, upstream, q, k, v, results[0], saved, results[1], results[2],
                                       results[3]);
        return results;
      };
      const auto here = run(DType::float32, wg::current_backend()),
                 exact = run(DType::float64, wg::backend("reference"));
      for (std::size_t i = 0; i < here.size(); ++i) {
        CAPTURE(i);
        const auto a = here[i].to_vector<double>(), b = exact[i].to_vector<double>();
        double worst = 0;
        for (std::size_t e = 0; e < a.size(); ++e) {
          const double gap = std::abs(a[e] - b[e]) / (1 + std::abs(b[e]));
          worst = std::isnan(gap) ? gap : std::max(worst, gap);
        }
        CHECK(worst < 1e-5);
      }
    }
}

TEST_CASE("attention: scores of any size, and NaN stays with its query") {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  const std::int64_t keys = 300;
  std::vector<double> q{1000, -1000, nan, 0}, k, v;
  for (std::int64_t j = 0; j < keys; ++j) k.push_back(static_cast<double>(j)), v.push_back(static_cast<double>(j % 7));
  const Tensor queries = wg::tensor(q, {1, 1, 4, 1}).to(DType::float32),
               key = wg::tensor(k, {1, 1, keys, 1}).to(DType::float32),
               value = wg::tensor(v, {1, 1, keys, 1}).to(DType::float32);
  const auto out = wg::scaled_dot_product_attention(queries, key, value).to_vector<double>();
  CHECK(out[0] == 299 % 7);  // scores up to 299,000: the last key alone
  CHECK(out[1] == 0);        // the first
  CHECK(std::isnan(out[2]));
  double mean = 0;
  for (const double x : v) mean += x / static_cast<double>(keys);
  CHECK(out[3] == doctest::Approx(mean));
  CHECK(std::isnan(wg::scaled_dot_product_attention(wg::full({1, 1, 1, 1}, inf), key, value).item()));
}

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
      Tensor grads[3];
      for (std::size_t input = 0; input < 3; ++input) grads[input] = wg::empty(qkv[input].shape(), qkv[input]);
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
