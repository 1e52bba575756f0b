// Races in device memory. In a build with ThreadSanitizer the emulator shows it every thread of the device as a thread:
// broken kernels are reported, and the backend's kernels are not. Elsewhere the same kernels run without a judge.

#include <doctest/doctest.h>

#include "emulator/emulator.hpp"
#include "emulator_tools.hpp"
#include "same_bits.hpp"
#include "wengert/kernels.hpp"
#include "wengert/ops.hpp"
#include "wengert/tensor.hpp"

namespace wg = wengert;
namespace emu = wengert::emulator;
using wg::DType;
using wg::Shape;
using wg::Tensor;
using wg::testing::Floats;
using wg::testing::random_ids;
using wg::testing::random_values;

namespace {

// Every block leaves its sum for the next, which nobody orders.
__global__ void chained_blocks(float* sums) {
  if (threadIdx.x == 0 && blockIdx.x > 0) sums[blockIdx.x] = sums[blockIdx.x - 1] + 1.0f;
}
// Neighbours exchange values through device memory; `barrier` says whether they wait for each other.
__global__ void exchange(float* x, bool barrier) {
  float* const mine = x + static_cast<std::size_t>(blockIdx.x) * blockDim.x;
  mine[threadIdx.x] = static_cast<float>(threadIdx.x);
  if (barrier) __syncthreads();
  const float other = mine[threadIdx.x ^ 1];
  if (barrier) __syncthreads();
  mine[threadIdx.x] = other;
}
// The same within a warp. A shuffle or a ballot does not order memory; __syncwarp does.
__global__ void exchange_in_warp(float* x, bool barrier) {
  float* const mine = x + static_cast<std::size_t>(blockIdx.x) * blockDim.x;
  mine[threadIdx.x] = static_cast<float>(threadIdx.x);
  if (barrier)
    __syncwarp();
  else
    __ballot_sync(0xFFFFFFFFu, true);
  const float other = mine[threadIdx.x ^ 1];
  if (barrier) __syncwarp();
  mine[threadIdx.x] = other;
}

constexpr int blocks = 4, threads = 128;

#if defined(__SANITIZE_THREAD__)
constexpr bool watched = true;
#elif defined(__has_feature)
constexpr bool watched = __has_feature(thread_sanitizer);
#else
constexpr bool watched = false;
#endif

}  // namespace

TEST_CASE("emulator: kernels with and without races" * doctest::skip()) {
  const emu::OptionsScope use({.separate_threads = true});
  const Floats x(blocks * threads);
  const std::string work = wg::testing::child_work();
  if (work == "blocks") emu::run("k", blocks, threads, chained_blocks, x.data());
  if (work == "no barrier") emu::run("k", blocks, threads, exchange, x.data(), false);
  if (work == "barrier") emu::run("k", blocks, threads, exchange, x.data(), true);
  if (work == "no warp barrier") emu::run("k", blocks, threads, exchange_in_warp, x.data(), false);
  if (work == "warp barrier") emu::run("k", blocks, threads, exchange_in_warp, x.data(), true);
}

TEST_CASE("emulator: ThreadSanitizer finds races in device memory, and no others") {
  if (!watched) {
    MESSAGE("skipped: this build is without ThreadSanitizer");
    return;
  }
  const auto races = [](const char* work) {
    const wg::testing::Ending ending = wg::testing::in_child("emulator: kernels with and without races", work);
    CHECK(ending.good() == (ending.output.find("data race") == std::string::npos));
    return !ending.good();
  };
  CHECK(races("blocks"));
  CHECK(races("no barrier"));
  CHECK(!races("barrier"));
  CHECK(races("no warp barrier"));
  CHECK(!races("warp barrier"));
}

// --- The backend's kernels ---

namespace {

using Results = std::vector<std::vector<float>>;

struct Run {
  wg::Kernels& kernels = wg::backend("cuda-emulated").kernels(DType::float32);
  Results results;

  Tensor floats(const Shape& shape, std::uint64_t seed) const {
    return wg::tensor(random_values<float>(shape.numel(), seed), shape);
  }
  Tensor ids(std::int64_t count, std::int64_t rows, std::uint64_t seed) const {
    return wg::tensor(random_ids(count, rows, seed), Shape{count});
  }
  void keep(const Tensor& x) { results.push_back(x.to(DType::float32).to_vector<float>()); }
  void keep(const wg::RowGrad& rows) { keep(rows.ids), keep(rows.rows); }
};

// Kernels with barriers, with several writers, or with threads that share what they read.
Results run_all() {
  Run run;
  wg::Kernels& k = run.kernels;
  for (const std::int64_t n : {5, 1100}) {  // a warp's rows, and a block's
    const Tensor x = run.floats({3, n}, 1), grad = run.floats({3, n}, 2), weight = run.floats({n}, 3);
    Tensor out = wg::empty({3, n}), stats = wg::empty({3, 2}), losses = wg::empty({3}), column = wg::empty({n}),
           places = wg::empty({3}, DType::int64), total = wg::empty({}, DType::float64);
    const Tensor labels = run.ids(3, n, 4);
    k.softmax(x, false, out), run.keep(out);
    k.softmax_backward(grad, out, false, out = wg::empty({3, n})), run.keep(out);
    k.cross_entropy({.smoothing = 0.1}, x, labels, losses, stats), run.keep(losses);
    k.cross_entropy_backward({}, losses, x, labels, stats, out), run.keep(out);
    k.normalize_rows(x, weight, weight, 1e-5, out, stats), run.keep(out);
    Tensor grad_weight = wg::empty({n}), grad_bias = wg::empty({n});
    k.normalize_rows_backward(grad, x, weight, stats, &out, &grad_weight, &grad_bias);
    run.keep(out), run.keep(grad_weight), run.keep(grad_bias);
    k.reduce(wg::Reduce::sum, {3, n, 1}, x, losses), run.keep(losses);
    k.reduce(wg::Reduce::max, {1, 3, n}, x, column), run.keep(column);
    k.argmax({3, n, 1}, x, places), run.keep(places);
    k.sum_squares(x, total), run.keep(total);
  }
  const wg::Dropout dropout{0.3, {1, 0, 0}};
  for (const std::int64_t d : {3, 8}) {
    const Tensor tokens = run.floats({20, d}, 5), positions = run.floats({7, d}, 6), ids = run.ids(21, 20, 7),
                 grad = run.floats({3, 7, d}, 8);
    const Tensor grid = wg::reshape(ids, {3, 7});
    Tensor out = wg::empty({3, 7, d});
    wg::Saved saved;
    k.embed_dropout(tokens, positions, grid, {}, dropout, out, saved), run.keep(out);
    wg::RowGrad token_grad, position_grad;
    k.embed_dropout_backward(grad, grid, {}, dropout, saved, 20, 7, 2, &token_grad, &position_grad);
    run.keep(token_grad), run.keep(position_grad);
    Tensor m = wg::zeros({20, d}), v = wg::zeros({20, d}), param = run.floats({20, d}, 9);
    k.adam_step({.lr = 0.1}, token_grad, param, m, v), run.keep(param);
    k.add_rows(token_grad, param), run.keep(param);
  }
  const Tensor many = run.ids(1500, 2, 10);  // runs of more than one segment
  run.keep(k.merge_rows(many, run.floats({1500, 3}, 11), 2, {}));
  const wg::IdRange range = k.id_range(run.ids(1000, 77, 12), {});
  run.results.push_back({static_cast<float>(range.smallest), static_cast<float>(range.largest)});
  Tensor bits = wg::empty({wg::bits::mask_words(1000)}, DType::int32), masked = wg::empty({1000});
  k.keep_mask(dropout, 1000, bits);
  k.apply_mask(run.floats({1000}, 13), bits, 2.0, masked), run.keep(masked);
  return run.results;
}

}  // namespace

TEST_CASE("emulator: the backend's kernels have no races, and no order of threads changes a bit") {
  const wg::BackendScope use("cuda-emulated");
  const Results wanted = run_all();
  CHECK(wanted.size() > 40);
  for (const emu::Order order : {emu::Order::ascending, emu::Order::descending}) {
    const emu::OptionsScope one_by_one({.order = order, .separate_threads = true});
    const Results got = run_all();
    REQUIRE(got.size() == wanted.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      CAPTURE(i);
      CHECK_SAME_BITS(got[i], wanted[i]);
    }
  }
}
