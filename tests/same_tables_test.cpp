// Promise 2 over many steps: tables trained along recorded upstream gradients end in the same bits on every backend.

#include <doctest/doctest.h>

#include <functional>
#include <memory>

#include "same_bits.hpp"
#include "wengert/backend.hpp"
#include "wengert/layers.hpp"
#include "wengert/ops.hpp"
#include "wengert/optim.hpp"
#include "wengert/random.hpp"
#include "wengert/tape.hpp"

namespace wg = wengert;
using wg::optim::RowUpdate;
using wg::testing::random_ids;
using wg::testing::random_values;

namespace {

using Parameters = wg::NamedTensors;
using MakeOptimizer = std::function<std::unique_ptr<wg::optim::Optimizer>(const Parameters&)>;

// Both tables after nine steps with dropout and a padding row; batches differ in length.
std::vector<std::vector<float>> train(const char* backend, const MakeOptimizer& make, std::int64_t width) {
  const wg::BackendScope use(backend);
  wg::manual_seed(5);
  wg::layers::TransformerEmbedding embed(
      {.vocab_size = 50, .max_seq_len = 40, .embed_dim = width, .dropout = 0.1, .padding_idx = 0});
  const auto optimizer = make(embed.named_parameters());
  for (std::uint64_t step = 0; step < 9; ++step) {
    const std::int64_t batch = 4, length = step % 3 == 0 ? 40 : 9;
    const wg::Tensor ids = wg::tensor(random_ids(batch * length, step % 2 == 0 ? 50 : 3, step), {batch, length});
    const wg::Tensor upstream =
        wg::tensor(random_values<float>(batch * length * width, 100 + step), {batch, length, width});
    {
      wg::Tape tape;
      tape.backward(wg::sum(embed(ids) * upstream));
    }
    optimizer->step();
    optimizer->zero_grad();
  }
  std::vector<std::vector<float>> tables;
  for (const auto& parameter : embed.named_parameters()) tables.push_back(parameter.tensor.to_vector<float>());
  return tables;
}

template <class Optimizer, class Options>
MakeOptimizer with(const Options& options) {
  return [options](const Parameters& parameters) { return std::make_unique<Optimizer>(parameters, options); };
}

}  // namespace

TEST_CASE("promise 2: tables trained along recorded gradients end in the same bits on every backend") {
  using wg::optim::AdamW;
  using wg::optim::AdamWOptions;
  using wg::optim::SGD;
  using wg::optim::SGDOptions;
  const MakeOptimizer rules[] = {
      with<SGD>(SGDOptions{.lr = 0.1}),
      with<SGD>(SGDOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true}),
      with<SGD>(SGDOptions{.lr = 0.1, .momentum = 0.9, .rows = RowUpdate::lazy}),
      with<AdamW>(AdamWOptions{.lr = 0.01}),
      with<AdamW>(AdamWOptions{.lr = 0.01, .rows = RowUpdate::lazy}),
  };
  for (const MakeOptimizer& rule : rules)
    for (const std::int64_t width : {16, 19}) {
      const auto wanted = train("reference", rule, width);
      CHECK(wanted.size() == 2);
      for (const char* backend : {"xsimd", "onednn", "odd", "cuda-emulated"}) {
        if (!wg::backend_available(backend)) continue;  // a build without oneDNN
        CAPTURE(backend);
        const auto got = train(backend, rule, width);
        REQUIRE(got.size() == wanted.size());
        for (std::size_t i = 0; i < wanted.size(); ++i) CHECK_SAME_BITS(got[i], wanted[i]);
      }
    }
}
