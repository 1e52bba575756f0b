/// Attention and softmax where scores are large: what is lost in digits must not be lost in the gradients.

#include <doctest/doctest.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>

#include "wengert/ops.hpp"
#include "wengert/random.hpp"
#include "wengert/tape.hpp"

using namespace wengert;

TEST_CASE("attention: rows whose scores are all shifted far have the gradients of rows that are not") {
  // A sum that is the same for all keys changes no weight: not -1e9 (the usual mask of padding), not the lowest float.
  for (const std::int64_t keys : {8, 257}) {
    const auto gradients = [&](double shift) {
      Generator values(5);
      std::vector<Tensor> in;
      for (const std::int64_t rows : {std::int64_t{3}, keys, keys})
        in.push_back(zeros({1, 2, rows, 7}).set_requires_grad());  // equal scores, so that adding `shift` is exact
      in[2] = randn({1, 2, keys, 7}, DType::float32, values).set_requires_grad();
      Tape tape;
      const Tensor mask = full({1, keys}, shift);
      const Tensor out = scaled_dot_product_attention(in[0], in[1], in[2], {.key_mask = mask});
      tape.backward(out, {.seed = randn(out.shape(), DType::float32, values)});
      return std::vector{in[0].grad().to_vector<float>(), in[1].grad().to_vector<float>(),
                         in[2].grad().to_vector<float>(), out.to_vector<float>()};
    };
    const auto plain = gradients(0.0);
    for (const double shift : {-1e4, 3e5, -1e9, static_cast<double>(-FLT_MAX)}) {
      CAPTURE(shift);
      const auto shifted = gradients(shift);
      for (std::size_t t = 0; t < plain.size(); ++t) {
        double worst = 0.0;
        for (std::size_t i = 0; i < plain[t].size(); ++i)
          worst = std::max(worst, std::abs(static_cast<double>(plain[t][i]) - static_cast<double>(shifted[t][i])));
        CHECK(worst < 1e-5);
      }
    }
  }
}

TEST_CASE("softmax of a row with a NaN or an infinity is NaN, in small tensors and in large ones") {
  for (const std::int64_t columns : {3, 2048, 5000})
    for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()})
      for (const bool log : {false, true}) {
        std::vector<float> values(static_cast<std::size_t>(4 * columns), 0.5F);
        values[static_cast<std::size_t>(columns + 1)] = static_cast<float>(bad);
        const Tensor x = tensor(values, {4, columns});
        const auto y = (log ? log_softmax(x) : softmax(x)).to_vector<float>();
        std::int64_t wrong = 0;
        for (std::int64_t i = 0; i < 4 * columns; ++i) {
          const bool nan = std::isnan(y[static_cast<std::size_t>(i)]);
          const bool expected = i / columns == 1;
          wrong += nan != expected ? 1 : 0;
        }
        CHECK(wrong == 0);
      }
}
