// The same bits for any number of threads, on sizes that are worth threads and on both sides of every threshold; life
// after a fork; floating-point modes. Runs on the backend that WENGERT_BACKEND names.

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xmmintrin.h>

#include <memory>
#include <thread>

#include "same_bits.hpp"
#include "wengert/bits.hpp"
#include "wengert/kernels.hpp"
#include "wengert/layers.hpp"
#include "wengert/ops.hpp"
#include "wengert/optim.hpp"
#include "wengert/tape.hpp"

namespace wg = wengert;
namespace bits = wengert::bits;
using wengert::testing::random_values;
using wg::DType;
using wg::Tensor;

namespace {

class Threads {
 public:
  explicit Threads(int count) : before_(wg::num_threads()) { wg::set_num_threads(count); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;
  ~Threads() { wg::set_num_threads(before_); }

 private:
  int before_;
};

std::vector<std::int64_t> random_ids(std::int64_t count, std::int64_t rows, std::uint64_t seed) {
  wg::Generator generator(seed);
  return wg::randint(0, rows, {count}, generator).to_vector<std::int64_t>();
}

// Calls run() once for each number of threads, and compares what it returns.
template <class Run>
void same_for_any_number_of_threads(Run run) {
  std::vector<float> first;
  for (const int count : {1, 2, 3, 8}) {
    const Threads use(count);
    std::vector<float> values = run();
    if (first.empty()) {
      first = std::move(values);
      continue;
    }
    CAPTURE(count);
    CHECK_SAME_BITS(values, first);
  }
}

}  // namespace

TEST_CASE("promise 2: the input layer, forward and backward, equals the scalar code for any number of threads") {
  struct Size {
    std::int64_t batch, length, d, rows = 997;
  };
  // About 1 MiB is worth a second thread; 4 MiB of output, or of different rows, bypass the caches.
  for (const Size size : {Size{3, 41, 67}, Size{4, 80, 512}, Size{5, 131, 403}, Size{4, 700, 768}, Size{7, 450, 701},
                          Size{4, 1000, 768, 30'000}, Size{5, 900, 700, 30'000}})
    for (const double p : {0.0, 0.1}) {
      CAPTURE(size.d);
      CAPTURE(p);
      const std::int64_t rows = size.rows, n = size.batch * size.length, d = size.d;
      const auto tokens = random_values<float>(rows * d, 1), positions = random_values<float>(size.length * d, 2),
                 upstream = random_values<float>(n * d, 3);
      const auto ids = random_ids(n, rows, 4);
      std::vector<std::int64_t> places;
      for (std::int64_t i = 0; i < n; ++i) places.push_back(i % size.length);
      const bits::Drawing drawing{p, 5, 0, 0};

      std::vector<float> out(static_cast<std::size_t>(n * d)), masked = upstream;
      bits::embed_dropout(tokens.data(), positions.data(), ids.data(), places.data(), n, d, drawing, out.data());
      if (p > 0) {
        std::vector<std::uint8_t> mask(static_cast<std::size_t>(4 * bits::mask_words(n * d)));
        bits::keep_mask(drawing, n * d, mask.data());
        bits::apply_mask(upstream.data(), mask.data(), bits::keep_scale(p), n * d, masked.data());
      }
      std::vector<float> place_grad(static_cast<std::size_t>(size.length * d));
      bits::sum_batch(masked.data(), size.batch, size.length * d, place_grad.data());

      for (const int count : {1, 2, 3, 8}) {
        CAPTURE(count);
        const Threads use(count);
        const Tensor table = wg::tensor(tokens, {rows, d}).set_requires_grad();
        const Tensor place = wg::tensor(positions, {size.length, d}).set_requires_grad();
        wg::manual_seed(5);
        wg::Tape tape;
        const Tensor x = wg::embed_dropout(table, place, wg::tensor(ids, {size.batch, size.length}), {.p = p});
        CHECK_SAME_BITS(x.to_vector<float>(), out);
        tape.backward(x, {.seed = wg::tensor(upstream, x.shape())});
        CHECK_SAME_BITS(place.grad().to_vector<float>(), place_grad);

        const wg::RowGrad& grad = table.gradient().rows();
        const auto grad_ids = grad.ids.to_vector<std::int64_t>();
        const auto grad_rows = grad.rows.to_vector<float>();
        bool same = true;
        for (std::size_t k = 0; k < grad_ids.size(); k += 1 + grad_ids.size() / 140)
          for (std::int64_t c = 0; c < d; ++c) {
            bits::TreeSum<float> sum;
            for (std::int64_t i = 0; i < n; ++i)
              if (ids[static_cast<std::size_t>(i)] == grad_ids[k]) sum.add(masked[static_cast<std::size_t>(i * d + c)]);
            same = same && wengert::testing::same_bits(
                               sum.result(), grad_rows[k * static_cast<std::size_t>(d) + static_cast<std::size_t>(c)]);
          }
        CHECK(same);
      }
    }
}

TEST_CASE("promise 2: optimiser steps for any number of threads") {
  const std::int64_t rows = 3001, d = 203;
  const auto values = random_values<float>(rows * d, 1), gradient = random_values<float>(rows * d, 2),
             sparse = random_values<float>(500 * d, 3);
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < 500; ++i) ids.push_back(6 * i + i % 5);
  for (const bool dense : {false, true})
    for (const auto update : {wg::optim::RowUpdate::dense, wg::optim::RowUpdate::lazy}) {
      const auto step = [&](auto make) {
        return [&, make] {
          const Tensor w = wg::tensor(values, {rows, d}).set_requires_grad();
          auto optimizer = make(wg::NamedTensors{{"w", w}});
          for (int i = 0; i < 3; ++i) {
            if (dense)
              Tensor(w).set_gradient(wg::tensor(gradient, w.shape()));
            else
              Tensor(w).set_gradient(wg::RowGrad{wg::tensor(ids, {500}), wg::tensor(sparse, {500, d}), rows});
            optimizer->step();
          }
          return w.to_vector<float>();
        };
      };
      same_for_any_number_of_threads(step([&](const wg::NamedTensors& parameters) {
        return std::make_unique<wg::optim::AdamW>(parameters, wg::optim::AdamWOptions{.lr = 0.1, .rows = update});
      }));
      same_for_any_number_of_threads(step([&](const wg::NamedTensors& parameters) {
        return std::make_unique<wg::optim::SGD>(parameters,
                                                wg::optim::SGDOptions{.lr = 0.1, .momentum = 0.9, .rows = update});
      }));
      same_for_any_number_of_threads(step([&](const wg::NamedTensors& parameters) {
        return std::make_unique<wg::optim::SGD>(parameters, wg::optim::SGDOptions{.lr = 0.1, .rows = update});
      }));
    }
}

TEST_CASE("other operations: the same bits for any number of threads") {
  if (wg::current_backend().name() == "onednn") return;  // promised there for one number of threads
  wg::Generator generator(6);
  const Tensor x = wg::randn({900, 701}, DType::float32, generator),
               w = wg::randn({533, 701}, DType::float32, generator);
  const Tensor bias = wg::randn({533}, DType::float32, generator);
  const Tensor labels = wg::randint(0, 701, {900}, generator);
  same_for_any_number_of_threads([&] { return wg::linear(x, w, bias).to_vector<float>(); });
  same_for_any_number_of_threads([&] { return wg::matmul(wg::transpose(x, 0, 1), x).to_vector<float>(); });
  same_for_any_number_of_threads([&] {
    return wg::matmul(wg::reshape(x, {9, 100, 701}), wg::reshape(wg::transpose(x, 0, 1), {9, 701, 100}).clone())
        .to_vector<float>();
  });
  same_for_any_number_of_threads([&] { return wg::softmax(x).to_vector<float>(); });
  same_for_any_number_of_threads([&] { return wg::exp(x * 0.1).to_vector<float>(); });
  same_for_any_number_of_threads([&] { return wg::sum(x).to_vector<float>(); });
  same_for_any_number_of_threads([&] { return wg::sum(x, 0).to_vector<float>(); });
  same_for_any_number_of_threads([&] { return wg::sum(x, 1).to_vector<float>(); });
  same_for_any_number_of_threads([&] {
    return (wg::reshape(x, {900, 1, 701}) * wg::slice(x, 0, 0, 3)).to_vector<float>();
  });
  same_for_any_number_of_threads([&] {
    const Tensor logits = x.clone().set_requires_grad();
    wg::Tape tape;
    tape.backward(wg::cross_entropy(logits, labels));
    return logits.grad().to_vector<float>();
  });
}

TEST_CASE("layer norm and attention: the same bits for any number of threads") {
  if (wg::current_backend().name() == "onednn") return;  // its matrix products promise it for one number of threads
  same_for_any_number_of_threads([&] {
    wg::Generator generator(8);
    const auto leaf = [&](const wg::Shape& shape) {
      return wg::randn(shape, DType::float32, generator).set_requires_grad();
    };
    const Tensor x = leaf({777, 403}), weight = leaf({403}), bias = leaf({403});
    const Tensor q = leaf({2, 3, 301, 64}), k = leaf({2, 3, 333, 64}), v = leaf({2, 3, 333, 64});
    const wg::GeneratorScope scope(generator);
    wg::Tape tape;
    const Tensor normal = wg::layer_norm(x, 403, weight, bias);
    const Tensor attended = wg::scaled_dot_product_attention(q, k, v, {.causal = true, .dropout = 0.1});
    const Tensor soft = wg::log_softmax(normal * 3.0);
    tape.backward(wg::sum(wg::square(soft)) + wg::sum(wg::square(attended)));
    std::vector<float> all;
    for (const Tensor& result : {normal, attended, x.grad(), weight.grad(), bias.grad(), q.grad(), k.grad(), v.grad()})
      for (const float value : result.to_vector<float>()) all.push_back(value);
    return all;
  });
}

TEST_CASE("several user threads compute at once, each with threads of its own") {
  const auto work = [](std::uint64_t seed) {
    wg::Generator generator(seed);
    const Tensor a = wg::randn({300, 400}, DType::float32, generator),
                 b = wg::randn({400, 500}, DType::float32, generator);
    Tensor sum = wg::zeros({300, 500});
    for (int i = 0; i < 20; ++i) sum.add_(wg::matmul(a, b));
    return sum.to_vector<float>();
  };
  const Threads use(2);
  std::vector<float> alone[3], together[3];
  for (std::uint64_t i = 0; i < 3; ++i) alone[i] = work(i);
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < 3; ++i) threads.emplace_back([&, i] { together[i] = work(i); });
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < 3; ++i) CHECK_SAME_BITS(together[i], alone[i]);
}

TEST_CASE("BK-03: a child of fork computes, also when its parent used threads") {
  if (wg::current_backend().name() == "odd") return;  // its private memory is shared with the child, not copied
  const Threads use(2);
  const Tensor x = wg::full({1'000'000}, 1.5);
  const auto add = [&] { return wg::sum(x + x).item(); };
  const double expected = add();
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);  // a hang ends in a signal
    _exit(add() == expected ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(add() == expected);
}

TEST_CASE("BK-05: subnormal numbers stay, on every thread, and the control register is left alone") {
  const unsigned before = _mm_getcsr();
  for (const int count : {1, 8}) {
    const Threads use(count);
    const auto values = (wg::full({1 << 20}, 1e-40) * 1.0).to_vector<float>();
    bool all = true;
    for (const float value : values) all = all && value == 1e-40F;
    CHECK(all);
  }
  CHECK((_mm_getcsr() & ~0x3FU) == (before & ~0x3FU));  // but for the flags of what has happened
}
