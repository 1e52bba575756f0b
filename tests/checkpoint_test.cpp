/// Checkpoints: promise 7. Killed at any moment, the last good one loads, and training resumed from it ends in the same
/// bits as training that never stopped.

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <memory>
#include <thread>

#include "file_tools.hpp"
#include "same_bits.hpp"
#include "wengert/io.hpp"
#include "wengert/layers.hpp"
#include "wengert/ops.hpp"
#include "wengert/tape.hpp"

using namespace wengert;
using namespace wengert::testing;
using io::Checkpoint;
using io::load_checkpoint;
using io::save_checkpoint;
using optim::ParameterGroup;

namespace {

constexpr std::int64_t vocab = 13, length = 6;

struct Model : layers::Module {
  layers::TransformerEmbedding embed{
      {.vocab_size = vocab, .max_seq_len = length, .embed_dim = 5, .dropout = 0.3, .padding_idx = 0}};
  layers::Linear head{{.in_features = 5, .out_features = vocab, .bias = false}};
  layers::Linear unused{{.in_features = 2, .out_features = 2}};  // never gets a gradient
  explicit Model(bool tied) {
    if (tied) head.weight = embed.token_embed.weight;
    register_module("embed", embed);
    register_module("head", head);
    register_module("unused", unused);
  }
};

using MakeOptimizer = std::function<std::unique_ptr<optim::Optimizer>(const Model&)>;

/// A training script that can be stopped anywhere: all that it draws comes from the default generator.
struct Run {
  Model model;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::int64_t step = 0;

  Run(bool tied, const MakeOptimizer& make) : model(tied), optimizer(make(model)) {
    optimizer->set_schedule(
        [](std::int64_t n) { return optim::linear_warmup(n, 3) * optim::step_decay(n - 3, 2, 0.5); });
  }
  void train(std::int64_t last) {
    while (step < last) {
      const Tensor ids = randint(0, vocab / 2, {2, length});  // half of the rows are never touched
      const Tensor labels = randint(0, vocab, {2, length});
      Tape tape;
      tape.backward(cross_entropy(model.head(model.embed(ids)), labels));
      optimizer->step();
      optimizer->zero_grad();
      ++step;
    }
  }
  Checkpoint checkpoint() const {
    return {.model = model.state_dict(), .optimizer = optimizer->state_dict(), .step = step};
  }
  void resume(const Checkpoint& saved) {
    model.load_state_dict(saved.model);
    optimizer->load_state_dict(saved.optimizer);
    default_generator().set_state(saved.random);
    step = saved.step;
  }
};

void check_same(const NamedTensors& a, const NamedTensors& b) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    CAPTURE(a[i].name);
    CHECK(a[i].name == b[i].name);
    CHECK_SAME_BITS(a[i].tensor.to_vector<float>(), b[i].tensor.to_vector<float>());
  }
}

struct Recipe {
  const char* name;
  bool tied;
  MakeOptimizer make;
};

const Recipe recipes[] = {
    {"AdamW", false,
     [](const Model& model) {
       return std::make_unique<optim::AdamW>(model.named_parameters(), optim::AdamWOptions{.lr = 0.05});
     }},
    {"Adam, lazy rows, tied", true,
     [](const Model& model) {
       return std::make_unique<optim::Adam>(model.named_parameters(),
                                            optim::AdamOptions{.lr = 0.05, .rows = optim::RowUpdate::lazy});
     }},
    {"Adam, lazy rows", false,
     [](const Model& model) {
       return std::make_unique<optim::Adam>(
           model.named_parameters(),
           optim::AdamOptions{.lr = 0.05, .weight_decay = 0.1, .rows = optim::RowUpdate::lazy});
     }},
    {"SGD with momentum", false,
     [](const Model& model) {
       return std::make_unique<optim::SGD>(model.named_parameters(),
                                           optim::SGDOptions{.lr = 0.5, .momentum = 0.9, .dampening = 0.1});
     }},
    {"plain SGD", true,
     [](const Model& model) {
       return std::make_unique<optim::SGD>(model.named_parameters(), optim::SGDOptions{.lr = 0.5});
     }},
    {"groups", false,
     [](const Model& model) {
       const auto positions = [](std::string_view name) { return name.find("pos_embed") != name.npos; };
       std::vector<ParameterGroup> groups;
       groups.push_back({.parameters = select(model.named_parameters(), positions), .lr = 0.2, .weight_decay = 0.0});
       groups.push_back(
           {.parameters = select(model.named_parameters(), std::not_fn(positions)), .rows = optim::RowUpdate::lazy});
       return std::make_unique<optim::AdamW>(std::move(groups), optim::AdamWOptions{.lr = 0.05});
     }},
};

}  // namespace

TEST_CASE("checkpoint: a resumed run ends in the same bits as one that never stopped, on every backend") {
  const TemporaryFolder folder;
  const std::string path = folder.file("run.ckpt");
  for (const std::string& name : backend_names()) {
    if (!backend_available(name)) continue;
    const BackendScope use(name);
    for (const Recipe& recipe : recipes) {
      for (const std::int64_t stop : {0, 1, 5}) {
        CAPTURE(name);
        CAPTURE(recipe.name);
        CAPTURE(stop);
        manual_seed(7, 3);
        Run straight(recipe.tied, recipe.make);
        straight.train(stop);
        save_checkpoint(straight.checkpoint(), path);
        straight.train(9);
        const RandomState end = default_generator().state();

        manual_seed(99);  // another start altogether
        Run resumed(recipe.tied, recipe.make);
        resumed.resume(load_checkpoint(path));
        CHECK(resumed.step == stop);
        resumed.train(9);
        check_same(resumed.model.state_dict(), straight.model.state_dict());
        check_same(resumed.optimizer->state_dict().tensors, straight.optimizer->state_dict().tensors);
        CHECK(resumed.optimizer->step_count() == 9);
        CHECK(resumed.optimizer->last_lr() == straight.optimizer->last_lr());
        CHECK(default_generator().state().counter == end.counter);
        CHECK(default_generator().state().stream == 3);
        CHECK(resumed.model.head.weight.is(resumed.model.embed.token_embed.weight) == recipe.tied);
      }
    }
  }
}

TEST_CASE("checkpoint: a run goes on, in the same bits, on another backend") {
  // What is exact on every backend is the embedding stack: this run has nothing else.
  const auto train = [](layers::TransformerEmbedding& embed, optim::Optimizer& optimizer, int steps) {
    for (int i = 0; i < steps; ++i) {
      const Tensor ids = randint(0, vocab, {2, length});
      Tape tape;
      const Tensor out = embed(ids);
      tape.backward(out, {.seed = full(out.shape(), 0.25)});
      optimizer.step();
      optimizer.zero_grad();
    }
  };
  const TemporaryFolder folder;
  const std::string path = folder.file("run.ckpt");
  const layers::TransformerEmbedding::Options options{
      .vocab_size = vocab, .max_seq_len = length, .embed_dim = 5, .dropout = 0.3};
  manual_seed(1);
  layers::TransformerEmbedding straight(options);
  optim::Adam optimizer(straight.named_parameters(), {.lr = 0.1});
  train(straight, optimizer, 3);
  save_checkpoint({.model = straight.state_dict(), .optimizer = optimizer.state_dict(), .step = 3}, path);
  train(straight, optimizer, 4);
  for (const std::string& name : backend_names()) {
    if (!backend_available(name)) continue;
    CAPTURE(name);
    const BackendScope use(name);
    layers::TransformerEmbedding resumed(options);
    optim::Adam other(resumed.named_parameters(), {.lr = 0.1});
    const Checkpoint saved = load_checkpoint(path);
    resumed.load_state_dict(saved.model);
    other.load_state_dict(saved.optimizer);
    default_generator().set_state(saved.random);
    train(resumed, other, 4);
    check_same(resumed.state_dict(), straight.state_dict());
  }
}

TEST_CASE("checkpoint: everything comes back, under names that others can read") {
  const TemporaryFolder folder;
  const std::string path = folder.file("run.ckpt");
  const RandomState random{UINT64_MAX, UINT64_MAX - 1, UINT64_MAX - 2};
  Checkpoint saved{.model = {{"w.step", ones({2})}, {"w", ones({3})}},
                   .optimizer = {.step_count = 12,
                                 .steps = {{"w", 11}, {"w.step", 12}},
                                 .tensors = {{"w.exp_avg", full({3}, 0.5)}, {"w.step.exp_avg", full({2}, 0.25)}}},
                   .random = random,
                   .step = INT64_MAX,
                   .metadata = {{"epoch", "3"}, {"note", "two\nlines"}}};
  save_checkpoint(saved, path);
  const Checkpoint loaded = load_checkpoint(path);
  check_same({loaded.model[1], loaded.model[0]}, saved.model);
  CHECK(loaded.optimizer.step_count == 12);
  REQUIRE(loaded.optimizer.steps.size() == 2);
  CHECK(loaded.optimizer.steps[0].name == "w");
  CHECK(loaded.optimizer.steps[0].value == 11);
  CHECK(loaded.optimizer.steps[1].name == "w.step");
  CHECK(loaded.optimizer.steps[1].value == 12);
  check_same(loaded.optimizer.tensors, saved.optimizer.tensors);
  CHECK(loaded.random.seed == random.seed);
  CHECK(loaded.random.stream == random.stream);
  CHECK(loaded.random.counter == random.counter);
  CHECK(loaded.step == INT64_MAX);
  REQUIRE(loaded.metadata.size() == 2);
  CHECK(io::find(loaded.metadata, "note") == "two\nlines");

  const io::SafetensorsFile file(path);
  CHECK(file.read("model.w").to_vector<double>() == std::vector<double>(3, 1.0));
  CHECK(file.read("optimizer.w.step").item<std::int64_t>() == 11);

  // Without a word about it, the state of the generator is the present one.
  manual_seed(5);
  default_generator().reserve(3);
  save_checkpoint({.model = {{"w", ones({1})}}}, path);
  manual_seed(6);
  const Checkpoint plain = load_checkpoint(path);
  CHECK(plain.random.seed == 5);
  CHECK(plain.random.counter == 3);
  CHECK(plain.step == 0);
  CHECK(plain.optimizer.tensors.empty());
}

TEST_CASE("POS-04: a checkpoint that does not fit changes nothing") {
  const TemporaryFolder folder;
  const std::string path = folder.file("run.ckpt");
  manual_seed(1);
  Run run(false, recipes[0].make);
  run.train(2);
  save_checkpoint(run.checkpoint(), path);
  const Checkpoint saved = load_checkpoint(path);

  Run tied(true, recipes[0].make);
  const NamedTensors before = [&] {
    NamedTensors state = tied.model.state_dict();
    for (NamedTensor& entry : state) entry.tensor = entry.tensor.clone();
    return state;
  }();
  CHECK_THROWS_WITH_AS(tied.model.load_state_dict(saved.model),
                       "load_state_dict: 5 of 5 keys matched; wrong: embed.token_embed.weight and head.weight are one "
                       "tensor here but differ",
                       Error);
  CHECK_THROWS_WITH_AS(tied.optimizer->load_state_dict(saved.optimizer),
                       "AdamW: the state does not fit this optimiser; unexpected: head.weight, head.weight.exp_avg, "
                       "head.weight.exp_avg_sq",
                       Error);
  check_same(tied.model.state_dict(), before);
  Run momentum(false, recipes[3].make);
  CHECK_THROWS_AS(momentum.optimizer->load_state_dict(saved.optimizer), Error);

  layers::TransformerEmbedding longer({.vocab_size = vocab, .max_seq_len = length + 1, .embed_dim = 5});
  io::save_safetensors(run.model.embed.state_dict(), folder.file("embed.safetensors"));
  CHECK_THROWS_WITH_AS(longer.load_state_dict(io::load_safetensors(folder.file("embed.safetensors"))),
                       "load_state_dict: 2 of 2 keys matched; wrong: pos_embed.weight is float32 [6, 5], not float32 "
                       "[7, 5]",
                       Error);
}

TEST_CASE("checkpoint: files that are none, and metadata that are taken") {
  const TemporaryFolder folder;
  const std::string path = folder.file("a.ckpt");
  const auto refused = [&](const NamedTensors& tensors, const io::Metadata& metadata, const std::string& reason) {
    io::save_safetensors(tensors, path, {.metadata = metadata});
    CHECK_THROWS_WITH_AS((void)load_checkpoint(path), ("checkpoint: cannot read \"" + path + "\": " + reason).c_str(),
                         IoError);
  };
  const io::Metadata good{{"wengert.checkpoint", "1"},           {"wengert.step", "4"},
                          {"wengert.optimizer.step_count", "4"}, {"wengert.random.seed", "1"},
                          {"wengert.random.stream", "0"},        {"wengert.random.counter", "9"}};
  const auto with = [&](std::size_t i, const std::string& value) {
    io::Metadata changed = good;
    changed[i].value = value;
    return changed;
  };
  refused({{"w", ones({1})}}, {}, "it is no checkpoint: its metadata lack wengert.checkpoint");
  refused({}, with(0, "2"), "wengert.checkpoint is \"2\", only 1 is known");
  refused({}, with(1, ""), "wengert.step is \"\", not a number");
  refused({}, with(1, "4x"), "wengert.step is \"4x\", not a number");
  refused({}, with(1, "9223372036854775808"), "wengert.step is \"9223372036854775808\", not a number");
  refused({}, with(5, "-1"), "wengert.random.counter is \"-1\", not a number");
  refused({{"w", ones({1})}}, good, "tensor \"w\" is neither the model's nor the optimiser's");
  io::save_safetensors({}, path, {.metadata = good});
  CHECK(load_checkpoint(path).step == 4);
  CHECK_THROWS_WITH_AS(
      save_checkpoint({.metadata = {{"wengert.x", "1"}}}, path),
      ("checkpoint: cannot write \"" + path + "\": metadata key \"wengert.x\" begins with \"wengert.\"").c_str(),
      IoError);
  CHECK(load_checkpoint(path).step == 4);
}

TEST_CASE("SER-06: killed at any moment, the last good checkpoint loads") {
  const TemporaryFolder folder;
  const std::string path = folder.file("run.ckpt");
  // Each checkpoint holds its number in every value.
  const auto save = [&path](std::int64_t number) {
    const auto value = static_cast<double>(number);
    save_checkpoint(
        {.model = {{"a", full({20'000}, value)}, {"b", full({7}, value)}},
         .optimizer = {.step_count = number, .steps = {{"a", number}}, .tensors = {{"a.exp_avg", full({500}, value)}}},
         .step = number},
        path);
  };
  save(0);
  std::int64_t last = 0;
  int moved = 0;
  for (std::uint64_t round = 0; round < 25; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      for (std::int64_t number = last + 1;; ++number) save(number);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(500 + random_word(11, round) % 20'000));
    REQUIRE(kill(child, SIGKILL) == 0);
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(WIFSIGNALED(status));

    const Checkpoint loaded = load_checkpoint(path);
    CAPTURE(round);
    CHECK(loaded.step >= last);
    const auto value = static_cast<double>(loaded.step);
    CHECK(find(loaded.model, "a").to_vector<double>() == std::vector<double>(20'000, value));
    CHECK(find(loaded.model, "b").to_vector<double>() == std::vector<double>(7, value));
    CHECK(loaded.optimizer.step_count == loaded.step);
    moved += loaded.step > last;
    last = loaded.step;
  }
  CHECK(moved > 0);
  // What the killed ones left half written is gone with the next save.
  save(last + 1);
  CHECK(load_checkpoint(path).step == last + 1);
  CHECK(folder.count() == 1);
}
