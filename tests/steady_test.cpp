/// A steady training step: nothing allocated, no page faults, nothing copied between host and backend,
/// nothing left on the tape; and memory that follows the batch.

#include <doctest/doctest.h>

#include <sys/resource.h>

#include <algorithm>
#include <memory>

#include "count_allocations.hpp"
#include "odd_backend.hpp"
#include "wengert/layers.hpp"
#include "wengert/ops.hpp"
#include "wengert/optim.hpp"
#include "wengert/random.hpp"
#include "wengert/tape.hpp"

using namespace wengert;
using optim::RowUpdate;

namespace {

struct Model : layers::Module {
  layers::TransformerEmbedding embed{{.vocab_size = 500, .max_seq_len = 40, .embed_dim = 24, .padding_idx = 0}};
  layers::Linear hidden{{.in_features = 24, .out_features = 32}};
  layers::Linear head{{.in_features = 32, .out_features = 500}};
  Model() {
    register_module("embed", embed);
    register_module("hidden", hidden);
    register_module("head", head);
  }
  Tensor operator()(const Tensor& ids) const { return head(relu(hidden(embed(ids)))); }
};

struct Transformer : layers::Module {
  layers::TransformerEmbedding embed{{.vocab_size = 500, .max_seq_len = 40, .embed_dim = 24}};
  layers::TransformerBlock first{{.embed_dim = 24,
                                  .num_heads = 3,
                                  .feedforward_dim = 32,
                                  .activation = layers::Activation::gelu,
                                  .norm_first = true}};
  layers::TransformerBlock second{{.embed_dim = 24, .num_heads = 2, .feedforward_dim = 32}};
  layers::Linear head{{.in_features = 24, .out_features = 500, .bias = false}};
  Transformer() {
    head.weight = embed.token_embed.weight;
    register_module("embed", embed);
    register_module("first", first);
    register_module("second", second);
    register_module("head", head);
  }
  Tensor operator()(const Tensor& ids) const { return head(second(first(embed(ids), {.causal = true}))); }
};

/// Batches that are on the backend before the training starts. They differ in their number of distinct ids.
struct Batch {
  Tensor ids, labels;
};
std::vector<Batch> make_batches() {
  std::vector<Batch> batches;
  for (const std::int64_t range : {500, 20, 3})
    batches.push_back({randint(0, range, {4, 32}), randint(0, 500, {4, 32})});
  return batches;
}

template <class Network>
void step(const Network& model, optim::Optimizer& optimizer, const Batch& batch, bool clip) {
  {
    Tape tape;
    tape.backward(cross_entropy(model(batch.ids), batch.labels));
  }
  if (clip) {
    optim::clip_grad_norm(optimizer, 0.5);
    optim::clip_grad_value(optimizer, 0.01);
  }
  optimizer.step();
  optimizer.zero_grad();
}

template <class Network>
void check_steady(const Network& model, optim::Optimizer& optimizer, bool clip) {
  const std::vector<Batch> batches = make_batches();
  for (int i = 0; i < 9; ++i) step(model, optimizer, batches[static_cast<std::size_t>(i % 3)], clip);

  const Memory& memory = current_backend().memory();
  const MemoryStats before = memory.stats();
  const std::int64_t system_calls_of_host = host_memory().stats().system_calls;
  const odd::Counts transfers = odd::counts();  // of the test backend, whose memory the host cannot see
  std::int64_t allocations = 0;
  {
    const AllocationCount count;
    for (int i = 0; i < 9; ++i) step(model, optimizer, batches[static_cast<std::size_t>(i % 3)], clip);
    allocations = count.value();
  }
  const odd::Counts transfers_after = odd::counts();
  const MemoryStats after = memory.stats();
  if (current_backend().name() != "onednn") CHECK(allocations == 0);  // running a primitive allocates inside oneDNN
  CHECK(after.system_calls == before.system_calls);
  CHECK(host_memory().stats().system_calls == system_calls_of_host);
  CHECK(after.requests > before.requests);
  CHECK(after.in_use == before.in_use);
  CHECK(live_nodes() == 0);
  if (current_backend().name() == "odd") {
    // Clipping by norm reads one number a parameter. Copies within the backend: the tape's own ids and labels.
    const std::int64_t parameters = static_cast<std::int64_t>(optimizer.named_parameters().size());
    CHECK(transfers_after.uploads == transfers.uploads);
    CHECK(transfers_after.downloads - transfers.downloads == (clip ? 9 * parameters : 0));
    CHECK(transfers_after.copies - transfers.copies == 9 * 2);
  }
}

}  // namespace

TEST_CASE("the counter of allocations counts") {
  const AllocationCount count;
  const auto value = std::make_unique<int>(1);
  const std::vector<int> values(100, *value);
  const void* volatile const seen[] = {value.get(), values.data()};  // a compiler may leave out what nobody sees
  CHECK(count.value() >= 2);
  CHECK(seen[0] != seen[1]);
}

TEST_CASE("a steady training step allocates nothing") {
  for (const bool clip : {false, true}) {
    CAPTURE(clip);
    for (const RowUpdate rows : {RowUpdate::dense, RowUpdate::lazy}) {
      Model model;
      optim::AdamW optimizer(model.named_parameters(), {.lr = 1e-3, .rows = rows});
      optimizer.set_schedule([](std::int64_t n) { return optim::linear_warmup(n, 5); });
      check_steady(model, optimizer, clip);
    }
    Model model;
    optim::SGD optimizer(model.named_parameters(), {.lr = 1e-2, .momentum = 0.9, .nesterov = true});
    check_steady(model, optimizer, clip);
    Transformer transformer;
    optim::AdamW of_transformer(transformer.named_parameters(), {.lr = 1e-3});
    check_steady(transformer, of_transformer, clip);
  }
}

namespace {

/// The input layer at a size whose tensors lie on pages of their own, with a loss of every output.
struct Input {
  layers::TransformerEmbedding embed;
  Tensor ids;
  Input(std::int64_t rows, std::int64_t width, std::int64_t batch, std::int64_t length)
      : embed({.vocab_size = rows, .max_seq_len = length, .embed_dim = width}),
        ids(randint(0, rows, {batch, length})) {}
  void step(optim::Optimizer& optimizer) {
    {
      Tape tape;
      const Tensor x = embed(ids);
      tape.backward(x, {.seed = x.detach()});
    }
    optimizer.step();
    optimizer.zero_grad();
  }
};

std::int64_t page_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt + usage.ru_majflt;
}

}  // namespace

TEST_CASE("a steady training step takes no page fault") {
  for (const RowUpdate rows : {RowUpdate::dense, RowUpdate::lazy}) {
    Input input(3000, 160, 16, 64);
    optim::AdamW optimizer(input.embed.named_parameters(), {.lr = 1e-3, .rows = rows});
    for (int i = 0; i < 5; ++i) input.step(optimizer);
    std::int64_t fewest = INT64_MAX;  // the system may take a page away at any moment, but not every time
    for (int attempt = 0; attempt < 5 && fewest > 0; ++attempt) {
      const std::int64_t before = page_faults();
      for (int i = 0; i < 5; ++i) input.step(optimizer);
      fewest = std::min(fewest, page_faults() - before);
    }
    CHECK(fewest == 0);
  }
}

TEST_CASE("a step with row-sparse gradients needs the table, the optimiser's state, and little more") {
  constexpr std::int64_t mega = 1 << 20, rows = 200'000, width = 64, table = rows * width * 4;
  Memory& memory = current_backend().memory();
  const auto peak_of = [&](auto make_optimizer) {
    memory.release_cached();
    const std::int64_t before = memory.stats().in_use;
    Input input(rows, width, 32, 128);
    auto optimizer = make_optimizer(input.embed.named_parameters());
    memory.reset_peak();
    for (int i = 0; i < 3; ++i) input.step(optimizer);
    return memory.stats().peak_in_use - before;
  };
  const auto sgd = [](const auto& parameters) { return optim::SGD(parameters, {.lr = 0.1}); };
  const auto adam = [](const auto& parameters) {
    return optim::AdamW(parameters, {.lr = 1e-3, .rows = RowUpdate::lazy});
  };
  CHECK(peak_of(sgd) < table + 32 * mega);
  CHECK(peak_of(adam) < 3 * table + 32 * mega);
}
