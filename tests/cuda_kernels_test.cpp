// What the CUDA kernels promise beyond the values that every backend's tests look at, on the emulated device.

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>

#include "emulator/emulator.hpp"
#include "same_bits.hpp"
#include "wengert/backend.hpp"
#include "wengert/kernels.hpp"
#include "wengert/layers.hpp"
#include "wengert/ops.hpp"
#include "wengert/optim.hpp"
#include "wengert/random.hpp"
#include "wengert/tape.hpp"

namespace wg = wengert;
namespace emu = wengert::emulator;
using wg::Shape;
using wg::Tensor;

TEST_CASE("BK-07: sizes that no y or z axis of a grid could have") {
  for (const Shape& shape : {Shape{65'536, 8}, Shape{1, 70'000, 4}}) {
    const auto x = wg::testing::random_values<float>(shape.numel(), 1);
    const Tensor a = wg::tensor(x, shape), row = wg::full({shape.size(-1)}, 2.0);
    std::vector<float> wanted(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) wanted[i] = (x[i] + x[i]) + 2.0f;
    CHECK_SAME_BITS(((a + a) + row).to_vector<float>(), wanted);
  }
}

TEST_CASE("BK-07: uploads do not need their source any more, and downloads are complete") {
  for (std::int64_t i = 0; i < 2'000; ++i) {
    auto source = std::make_unique<std::vector<std::int64_t>>(64, i);
    const Tensor x = wg::tensor(*source, {64});
    std::fill(source->begin(), source->end(), -1);
    source.reset();
    const auto values = wg::concat({x, x}, 0).to_vector<std::int64_t>();
    REQUIRE(values == std::vector<std::int64_t>(128, i));
  }
}

TEST_CASE("cuda: operations on nothing launch nothing, and what follows is unaffected") {
  const wg::BackendScope use("cuda-emulated");
  const Tensor ids = wg::tensor(std::vector<std::int64_t>{}, {0}), table = wg::zeros({10, 4}), none = wg::zeros({0, 4});
  const Tensor narrow = wg::zeros({10, 0}), three = wg::tensor<std::int64_t>({0, 3, 3});
  const std::int64_t before = emu::counts.launches;
  CHECK(wg::embedding(table, ids).shape() == Shape{0, 4});
  CHECK((none + none).numel() == 0);
  CHECK(wg::exp(none).numel() == 0);
  CHECK(wg::softmax(none, -1).numel() == 0);
  CHECK(wg::sum(wg::zeros({3, 0}), 0).numel() == 0);
  CHECK(wg::matmul(none, wg::zeros({4, 0})).numel() == 0);
  CHECK(wg::dropout(none, 0.5).numel() == 0);
  CHECK(wg::RowGrad::merge(ids, none, 10).count() == 0);
  CHECK(emu::counts.launches == before);
  CHECK(wg::embedding(narrow, three).shape() == Shape{3, 0});
  CHECK(wg::sum(wg::embedding(wg::ones({10, 4}), three)).item() == 12.0);
}

TEST_CASE("cuda: a steady step waits for the device once, for the number of rows in the token table's gradient") {
  const wg::BackendScope use("cuda-emulated");
  wg::layers::TransformerEmbedding embed({.vocab_size = 50, .max_seq_len = 8, .embed_dim = 16, .dropout = 0.1});
  wg::optim::AdamW optimizer(embed.named_parameters(), {.lr = 1e-2});
  const Tensor ids = wg::randint(0, 50, {4, 8});
  const auto step = [&] {
    {
      wg::Tape tape;
      tape.backward(wg::mean(wg::square(embed(ids))));
    }
    optimizer.step();
    optimizer.zero_grad();
  };
  step();
  const std::int64_t before = emu::counts.waits;
  for (int i = 0; i < 5; ++i) step();
  CHECK(emu::counts.waits - before == 5);
}
