// What PyTorch computes, from the files of parity/make.py: layers, optimisers, a training run. Runs on every backend in
// float32, and in float64 where the backend has it.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <set>

#include "parity_tools.hpp"
#include "wengert/gradient.hpp"
#include "wengert/layers.hpp"
#include "wengert/ops.hpp"
#include "wengert/optim.hpp"
#include "wengert/tape.hpp"

using namespace parity;

TEST_CASE("parity with PyTorch: layers, with weights loaded as they are") {
  Cases cases("layers", "layers");
  std::set<std::string> met;
  for (const Fixture& fixture : cases.all())
    for (const DType dtype : types()) {
      const std::vector<std::string>& words = fixture.words;
      const bool bias = !fixture.has("no");
      met.insert(words[0]);
      const auto hold = [&](auto&& layer, auto run) {
        layer.load_state_dict(fixture.part("weight/", dtype), {.strict = !fixture.part("weight/", dtype).empty()});
        cases.compare(
            fixture, dtype, [&](const Inputs& in) { return run(layer, in); }, &layer);
      };
      const auto forward = [](const auto& layer, const Inputs& in) { return layer(in[0]); };
      if (words[0] == "linear") {
        hold(layers::Linear({.in_features = 7, .out_features = 3, .bias = bias, .dtype = dtype}), forward);
      } else if (words[0] == "layer_norm") {
        hold(layers::LayerNorm({.normalized_shape = {17},
                                .eps = fixture.has("bias") ? 1e-3 : 1e-5,
                                .elementwise_affine = !fixture.has("affine"),
                                .bias = bias,
                                .dtype = dtype}),
             forward);
      } else if (words[0] == "embedding") {
        layers::Embedding::Options options{.num_embeddings = 11, .embedding_dim = 5, .dtype = dtype};
        if (fixture.has("padding")) options.padding_idx = 3;
        hold(layers::Embedding(options), forward);
      } else if (words[0] == "block") {
        hold(layers::TransformerBlock({.embed_dim = 8,
                                       .num_heads = 2,
                                       .feedforward_dim = 19,
                                       .dropout = 0.0,
                                       .activation = words[1] == "relu"   ? layers::Activation::relu
                                                     : words[1] == "gelu" ? layers::Activation::gelu
                                                                          : layers::Activation::gelu_tanh,
                                       .norm_first = words[2] == "1",
                                       .layer_norm_eps = 1e-4,
                                       .bias = bias,
                                       .dtype = dtype}),
             [&](const auto& block, const Inputs& in) {
               if (fixture.has("padding")) return block(in[0], {.key_padding_mask = in[1]});
               return block(in[0], {.causal = true});
             });
      } else if (words[0] == "bert") {
        hold(
            layers::BertEmbedding({.vocab_size = 11, .max_seq_len = 9, .embed_dim = 6, .dropout = 0.0, .dtype = dtype}),
            [](const auto& bert, const Inputs& in) { return bert(in[0], {.token_type_ids = in[1]}); });
      } else {
        hold(layers::MultiHeadAttention(
                 {.embed_dim = std::stoll(words[1]), .num_heads = std::stoll(words[2]), .bias = bias, .dtype = dtype}),
             [&](const auto& attention, const Inputs& in) {
               if (words[0] == "cross_attn") return attention(in[0], in[1], in[2]);
               return attention(in[0], {.causal = fixture.has("causal"),
                                        .key_padding_mask = in.size() > 1 ? in[1].detach() : Tensor()});
             });
      }
    }
  CHECK(met == std::set<std::string>{"bert", "block", "cross_attn", "embedding", "layer_norm", "linear", "self_attn"});
  cases.finish();
}

namespace {

using MakeOptimizer = std::function<std::unique_ptr<optim::Optimizer>(NamedTensors)>;

template <class T, class Options>
MakeOptimizer make(const Options& options) {
  return [options](NamedTensors parameters) { return std::make_unique<T>(std::move(parameters), options); };
}

const std::map<std::string, MakeOptimizer>& optimizers() {
  using optim::RowUpdate;
  static const std::map<std::string, MakeOptimizer> all{
      {"sgd", make<optim::SGD>(optim::SGDOptions{.lr = 0.1})},
      {"sgd momentum", make<optim::SGD>(optim::SGDOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01})},
      {"sgd dampening", make<optim::SGD>(optim::SGDOptions{.lr = 0.1, .momentum = 0.8, .dampening = 0.3})},
      {"sgd nesterov",
       make<optim::SGD>(optim::SGDOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1, .nesterov = true})},
      {"adam", make<optim::Adam>(optim::AdamOptions{.lr = 0.01})},
      {"adam decay", make<optim::Adam>(optim::AdamOptions{
                         .lr = 0.01, .beta1 = 0.8, .beta2 = 0.99, .eps = 1e-4, .weight_decay = 0.1})},
      {"adamw", make<optim::AdamW>(optim::AdamWOptions{.lr = 0.01})},
      {"adamw decay",
       make<optim::AdamW>(optim::AdamWOptions{.lr = 0.01, .beta1 = 0.8, .beta2 = 0.99, .weight_decay = 0.3})},
      {"sparse sgd", make<optim::SGD>(optim::SGDOptions{.lr = 0.1})},
      {"sparse adam", make<optim::Adam>(optim::AdamOptions{
                          .lr = 0.01, .beta1 = 0.8, .beta2 = 0.99, .eps = 1e-100, .rows = RowUpdate::lazy})},
  };
  return all;
}

}  // namespace

TEST_CASE("parity with PyTorch: ten steps of every optimiser, clipping, schedules") {
  Cases cases("optim", "kinds of optimisers, clipping and schedules");
  std::size_t met = 0;
  for (const Fixture& fixture : cases.all()) {
    if (fixture.words[0] == "clip" || fixture.words[0] == "schedule") continue;
    const auto found = optimizers().find(fixture.name);
    REQUIRE_MESSAGE(found != optimizers().end(), fixture.name);
    ++met;
    for (const DType dtype : types()) {
      CAPTURE(fixture.name);
      CAPTURE(std::string(name_of(dtype)));
      const auto row = [&](const char* what, std::int64_t t) {
        const Tensor& all = fixture.at(what);
        return here(reshape(slice(all, 0, t, t + 1), all.shape().without(0)), dtype);
      };
      Tensor table = here(fixture.at("start"), dtype).set_requires_grad();
      Tensor other = row("start", 0).set_requires_grad();
      const auto optimizer = found->second({{"table", table}, {"other", other}});
      for (std::int64_t t = 0; t < 10; ++t) {
        const Tensor gradient = row("gradients", t), rows = row("rows", t);
        other.zero_grad();
        if (fixture.words[0] == "sparse") {
          table.set_gradient(RowGrad{rows, embedding(gradient, rows), 5});
        } else {
          table.set_gradient(gradient);
          if (t % 2 == 0) other.set_gradient(reshape(slice(gradient, 0, 0, 1), {3}).clone());
        }
        optimizer->step();
        cases.value(table.detach(), row("table", t));
        cases.value(other.detach(), row("other", t));
      }
    }
  }
  CHECK(met == optimizers().size());

  for (const Fixture& fixture : cases.all()) {
    if (fixture.words[0] != "clip") continue;
    for (const DType dtype : types()) {
      CAPTURE(fixture.name);
      std::vector<Tensor> parameters;
      for (const Tensor& gradient : fixture.inputs(dtype)) {
        parameters.push_back(zeros(gradient.shape(), gradient).set_requires_grad());
        parameters.back().set_gradient(gradient.detach().clone());
      }
      if (fixture.has("value")) {
        optim::clip_grad_value(parameters, 0.75);
      } else {
        const double norm = optim::clip_grad_norm(parameters, fixture.has("not") ? 1e3 : 0.7);
        CHECK(norm == doctest::Approx(fixture.at("norm").item()).epsilon(forward_tolerance(dtype)));
      }
      for (std::size_t i = 0; i < 2; ++i) cases.value(parameters[i].grad(), fixture.at(i == 0 ? "out0" : "out1"));
    }
  }

  for (const Fixture& fixture : cases.all()) {
    if (fixture.words[0] != "schedule") continue;
    CAPTURE(fixture.name);
    const auto factors = fixture.at("factors").to_vector<double>();
    for (std::int64_t step = 1; step <= 10; ++step) {
      const double factor = fixture.has("step_decay")     ? optim::step_decay(step, 3, 0.5)
                            : fixture.has("linear_decay") ? optim::linear_decay(step - 1, 6, 0.25)
                                                          : optim::cosine_decay(step - 1, 10, 0.25);
      CHECK(factor == doctest::Approx(factors[static_cast<std::size_t>(step - 1)]).epsilon(1e-12));
    }
  }
  cases.finish();
}

namespace {

constexpr std::int64_t vocabulary = 40, context = 32, width = 32;

struct Gpt : layers::Module {
  layers::TransformerEmbedding embed{
      {.vocab_size = vocabulary, .max_seq_len = context, .embed_dim = width, .dropout = 0.0}};
  layers::ModuleList<layers::TransformerBlock> blocks;
  layers::LayerNorm norm{{.normalized_shape = {width}}};
  layers::Linear head{{.in_features = width, .out_features = vocabulary}};
  Gpt() {
    for (int i = 0; i < 2; ++i)
      blocks.emplace_back({.embed_dim = width,
                           .num_heads = 4,
                           .feedforward_dim = 4 * width,
                           .dropout = 0.0,
                           .activation = layers::Activation::gelu,
                           .norm_first = true});
    register_module("embed", embed);
    register_module("blocks", blocks);
    register_module("norm", norm);
    register_module("head", head);
  }
  Tensor operator()(const Tensor& ids) const {
    Tensor x = embed(ids);
    for (std::size_t i = 0; i < blocks.size(); ++i) x = blocks[i](x, {.causal = true});
    return head(norm(x));
  }
};

}  // namespace

TEST_CASE("parity with PyTorch: the losses of 200 training steps of a small GPT, from the same weights and batches") {
  const NamedTensors data = read("gpt");
  Gpt model;
  NamedTensors state;
  for (const NamedTensor& entry : data)
    if (entry.name.rfind("weight/", 0) == 0) state.push_back({entry.name.substr(7), entry.tensor});
  model.load_state_dict(state);

  const auto is_position = [](std::string_view name) { return name.rfind("embed.pos_embed", 0) == 0; };
  const NamedTensors parameters = model.named_parameters();
  optim::AdamW optimizer(select(parameters, std::not_fn(is_position)),
                         {.lr = 3e-3, .beta2 = 0.99, .weight_decay = 0.0});
  optimizer.add_group({.parameters = select(parameters, is_position), .lr = 9e-3, .weight_decay = 0.5});
  optimizer.set_schedule(
      [](std::int64_t step) { return optim::linear_warmup(step, 50) * optim::cosine_decay(step, 200); });

  const Tensor text = find(data, "text").to(current_backend());
  const std::vector<double> losses = find(data, "losses").to_vector<double>();
  double largest = 0;
  for (std::int64_t step = 0; step < std::ssize(losses); ++step) {
    const Tensor batch = reshape(slice(text, 0, step, step + 1), {-1, context + 1});
    Tape tape;
    const Tensor loss = cross_entropy(model(slice(batch, 1, 0, -1)), slice(batch, 1, 1));
    tape.backward(loss);
    optimizer.step();
    optimizer.zero_grad();
    largest = std::max(largest, std::abs(loss.item() - losses[static_cast<std::size_t>(step)]));
  }
  CHECK(largest < 1e-3);
  MESSAGE(fmt::format("parity: the losses of {} training steps of a GPT on {}: within {:.1e}, allowed 0.001",
                      losses.size(), current_backend().name(), largest));
  CHECK(losses.back() < 0.7 * losses.front());  // there was something to learn
}
