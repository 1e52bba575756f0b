// What PyTorch computes, from the files of parity/make.py: operations, layers, optimisers, a training run. Runs on
// every backend in float32, and in float64 where the backend has it.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <sstream>

#include "wengert/gradient.hpp"
#include "wengert/io.hpp"
#include "wengert/layers.hpp"
#include "wengert/ops.hpp"
#include "wengert/optim.hpp"
#include "wengert/tape.hpp"

using namespace wengert;

namespace {

using Inputs = std::vector<Tensor>;
using Values = std::vector<double>;

NamedTensors read(const std::string& name) {
  // On the host first: not every backend has float64.
  const BackendScope use("reference");
  return io::load_safetensors(std::string(WENGERT_PARITY_DATA) + "/" + name + ".safetensors");
}

std::vector<DType> types() {
  std::vector<DType> all{DType::float32};
  try {
    current_backend().kernels(DType::float64);
    all.push_back(DType::float64);
  } catch (const DTypeError&) {
  }
  return all;
}

// On this backend, floating values as `dtype`.
Tensor here(const Tensor& x, DType dtype) {
  return (is_floating(x.dtype()) ? x.to(dtype) : x).to(current_backend()).clone();
}

// The largest difference, each measured against the size of the value and of the values around it.
double worst(const Tensor& got, const Tensor& wanted) {
  REQUIRE(got.shape() == wanted.shape());
  const Values a = got.to_vector<double>(), b = wanted.to_vector<double>();
  double squares = 0, largest = 0;
  for (const double x : b) squares += x * x / static_cast<double>(b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double gap = a[i] == b[i] ? 0 : std::abs(a[i] - b[i]) / (std::abs(b[i]) + std::sqrt(squares));
    largest = std::isnan(gap) ? gap : std::max(largest, gap);
  }
  return largest;
}

// The words of a case's name, and its tensors by what follows the slash.
struct Fixture {
  std::string name;
  std::vector<std::string> words;
  std::map<std::string, Tensor> tensors;

  Inputs inputs(DType dtype) const {
    Inputs all;
    for (std::size_t i = 0;; ++i) {
      const auto found = tensors.find("in" + std::to_string(i));
      if (found == tensors.end()) return all;
      all.push_back(here(found->second, dtype));
      if (is_floating(found->second.dtype())) all.back().set_requires_grad();
    }
  }
  /// The state dict of a layer, or its gradients.
  NamedTensors part(const std::string& prefix, DType dtype) const {
    NamedTensors all;
    for (const auto& [key, tensor] : tensors)
      if (key.rfind(prefix, 0) == 0) all.push_back({key.substr(prefix.size()), here(tensor, dtype)});
    return all;
  }
  bool has(const char* word) const { return std::find(words.begin(), words.end(), word) != words.end(); }
};

std::vector<Fixture> fixtures(const std::string& file) {
  std::map<std::string, Fixture> cases;
  for (const NamedTensor& entry : read(file)) {
    const std::size_t slash = entry.name.find('/');
    Fixture& fixture = cases[entry.name.substr(0, slash)];
    fixture.tensors[entry.name.substr(slash + 1)] = entry.tensor;
  }
  std::vector<Fixture> all;
  for (auto& [name, fixture] : cases) {
    fixture.name = name;
    std::istringstream text(name);
    for (std::string word; text >> word;) fixture.words.push_back(word);
    all.push_back(std::move(fixture));
  }
  return all;
}

double forward_tolerance(DType dtype) { return dtype == DType::float32 ? 1e-5 : 1e-12; }
double gradient_tolerance(DType dtype) { return dtype == DType::float32 ? 1e-4 : 1e-12; }

// Runs one case and compares the result and all gradients.
void compare(const Fixture& fixture, DType dtype, const std::function<Tensor(const Inputs&)>& run,
             const layers::Module* module = nullptr) {
  CAPTURE(fixture.name);
  CAPTURE(std::string(name_of(dtype)));
  const Inputs inputs = fixture.inputs(dtype);
  Tape tape;
  const Tensor out = run(inputs);
  const Tensor& wanted = fixture.tensors.at("out");
  if (!is_floating(wanted.dtype())) {
    CHECK(out.to_vector<std::int64_t>() == wanted.to_vector<std::int64_t>());
    return;
  }
  CHECK(worst(out, wanted) <= forward_tolerance(dtype));
  tape.backward(out, {.seed = here(fixture.tensors.at("upstream"), dtype)});
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].requires_grad()) continue;
    CAPTURE(i);
    CHECK(worst(inputs[i].grad(), fixture.tensors.at("grad" + std::to_string(i))) <= gradient_tolerance(dtype));
  }
  if (!module) return;
  for (const NamedTensor& entry : fixture.part("weight_grad/", dtype)) {
    CAPTURE(entry.name);
    const Tensor grad = find(module->named_parameters(), entry.name).grad();
    REQUIRE(grad.defined());
    CHECK(worst(grad, entry.tensor) <= gradient_tolerance(dtype));
  }
}

// --- Operations, by the first word of a case's name; the other words are options ---

using Operation = std::function<Tensor(const Inputs&, const Fixture&)>;

template <class F>
Operation one(F f) {
  return [f](const Inputs& in, const Fixture&) { return f(in[0]); };
}
template <class F>
Operation two(F f) {
  return [f](const Inputs& in, const Fixture&) { return f(in[0], in[1]); };
}
Reduction reduction_of(const std::string& word) {
  return word == "none" ? Reduction::none : word == "sum" ? Reduction::sum : Reduction::mean;
}

// "sum [3, 7]": over all; "sum [3, 7] -1 1": along an axis, kept or not. The shape takes as many words as it has axes.
template <class All, class Along>
Operation reduction(All all, Along along) {
  return [=](const Inputs& in, const Fixture& fixture) {
    const auto axis = static_cast<std::size_t>(in[0].dim()) + 1;
    if (fixture.words.size() <= axis) return all(in[0]);
    return along(in[0], std::stoll(fixture.words[axis]), fixture.words[axis + 1] == "1");
  };
}

const std::map<std::string, Operation>& operations() {
  static const std::map<std::string, Operation> all{
      {"neg", one(neg)},
      {"square", one(square)},
      {"sqrt", one([](const Tensor& x) { return wengert::sqrt(x); })},
      {"exp", one([](const Tensor& x) { return wengert::exp(x); })},
      {"log", one([](const Tensor& x) { return wengert::log(x); })},
      {"tanh", one([](const Tensor& x) { return wengert::tanh(x); })},
      {"relu", one(relu)},
      {"gelu", one([](const Tensor& x) { return gelu(x); })},
      {"gelu_tanh", one([](const Tensor& x) { return gelu(x, Approximate::tanh); })},
      {"scalars", one([](const Tensor& x) { return 2.5 - (1.5 / (x * 3.0 + 0.5) - 2.0) / 4.0; })},
      {"add", two([](const Tensor& a, const Tensor& b) { return a + b; })},
      {"sub", two([](const Tensor& a, const Tensor& b) { return a - b; })},
      {"mul", two([](const Tensor& a, const Tensor& b) { return a * b; })},
      {"div", two([](const Tensor& a, const Tensor& b) { return a / b; })},
      {"where", [](const Inputs& in, const Fixture&) { return where(in[0], in[1], in[2]); }},
      {"sum", reduction([](const Tensor& x) { return sum(x); },
                        [](const Tensor& x, std::int64_t axis, bool keep) { return sum(x, axis, keep); })},
      {"mean", reduction([](const Tensor& x) { return mean(x); },
                         [](const Tensor& x, std::int64_t axis, bool keep) { return mean(x, axis, keep); })},
      {"max", reduction([](const Tensor& x) { return max(x); },
                        [](const Tensor& x, std::int64_t axis, bool keep) { return max(x, axis, keep); })},
      {"argmax", reduction([](const Tensor& x) { return argmax(x); },
                           [](const Tensor& x, std::int64_t axis, bool keep) { return argmax(x, axis, keep); })},
      {"reshape", one([](const Tensor& x) {
         return reshape(x, {7, -1});
       })},
      {"transpose", one([](const Tensor& x) { return transpose(x, -1, 0); })},
      {"permute", one([](const Tensor& x) {
         return permute(x, {2, 0, 1});
       })},
      {"slice", one([](const Tensor& x) { return slice(x, 1, 1, -1); })},
      {"concat", [](const Inputs& in, const Fixture&) { return concat(std::span(in), -1); }},
      {"broadcast_to", one([](const Tensor& x) {
         return broadcast_to(x, {2, 3, 4});
       })},
      {"matmul", two(matmul)},
      {"linear",
       [](const Inputs& in, const Fixture&) { return linear(in[0], in[1], in.size() > 2 ? in[2] : Tensor()); }},
      {"softmax", [](const Inputs& in, const Fixture& f) { return softmax(in[0], std::stoll(f.words.back())); }},
      {"log_softmax",
       [](const Inputs& in, const Fixture& f) { return log_softmax(in[0], std::stoll(f.words.back())); }},
      {"mse_loss", [](const Inputs& in, const Fixture& f) { return mse_loss(in[0], in[1], reduction_of(f.words[1])); }},
      {"cross_entropy",
       [](const Inputs& in, const Fixture& f) {
         return cross_entropy(in[0], in[1],
                              {.ignore_index = std::stoll(f.words[2]),
                               .reduction = reduction_of(f.words[1]),
                               .label_smoothing = std::stod(f.words[3])});
       }},
      {"embedding",
       [](const Inputs& in, const Fixture& f) {
         EmbeddingOptions options;
         if (f.words.back() != "None") options.padding_idx = std::stoll(f.words.back());
         return embedding(in[0], in[1], options);
       }},
      {"layer_norm",
       [](const Inputs& in, const Fixture& f) {
         if (f.has("weight")) return layer_norm(in[0], in[1].shape(), in[1], in[2]);
         // Without weights the shape stands at the end of the name alone: "[2, 3, 5] [3, 5]".
         const std::string text = f.name.substr(f.name.rfind('[') + 1);
         const std::int64_t axes = 1 + std::count(text.begin(), text.end(), ',') - (text.find(",]") != text.npos);
         return layer_norm(in[0], in[0].shape().sub(in[0].dim() - axes, in[0].dim()), {}, {}, 1e-3);
       }},
      {"attention",
       [](const Inputs& in, const Fixture& f) {
         AttentionOptions options{.causal = f.has("causal"), .key_mask = f.has("mask") ? in[3] : Tensor()};
         if (f.has("scale")) options.scale = 0.3;
         return scaled_dot_product_attention(in[0], in[1], in[2], options);
       }},
  };
  return all;
}

}  // namespace

TEST_CASE("parity with PyTorch: operations and their gradients") {
  std::set<std::string> met;
  for (const Fixture& fixture : fixtures("ops")) {
    const auto found = operations().find(fixture.words[0]);
    REQUIRE_MESSAGE(found != operations().end(), fixture.name);
    met.insert(fixture.words[0]);
    for (const DType dtype : types())
      compare(fixture, dtype, [&](const Inputs& in) { return found->second(in, fixture); });
  }
  CHECK(met.size() == operations().size());
}

TEST_CASE("parity with PyTorch: layers, with weights loaded as they are") {
  std::set<std::string> met;
  for (const Fixture& fixture : fixtures("layers"))
    for (const DType dtype : types()) {
      met.insert(fixture.words[0]);
      const NamedTensors state = fixture.part("weight/", dtype);
      if (fixture.words[0] == "block") {
        const std::string& activation = fixture.words[1];
        layers::TransformerBlock block({.embed_dim = 8,
                                        .num_heads = 2,
                                        .feedforward_dim = 19,
                                        .dropout = 0.0,
                                        .activation = activation == "relu"   ? layers::Activation::relu
                                                      : activation == "gelu" ? layers::Activation::gelu
                                                                             : layers::Activation::gelu_tanh,
                                        .norm_first = fixture.words[2] == "1",
                                        .layer_norm_eps = 1e-4,
                                        .dtype = dtype});
        block.load_state_dict(state);
        compare(
            fixture, dtype, [&](const Inputs& in) { return block(in[0], {.causal = true}); }, &block);
      } else if (fixture.words[0] == "bert") {
        layers::BertEmbedding bert(
            {.vocab_size = 11, .max_seq_len = 9, .embed_dim = 6, .dropout = 0.0, .dtype = dtype});
        bert.load_state_dict(state);
        compare(
            fixture, dtype, [&](const Inputs& in) { return bert(in[0], {.token_type_ids = in[1]}); }, &bert);
      } else {
        layers::MultiHeadAttention attention({.embed_dim = std::stoll(fixture.words[1]),
                                              .num_heads = std::stoll(fixture.words[2]),
                                              .bias = !fixture.has("no"),
                                              .dtype = dtype});
        attention.load_state_dict(state);
        const auto run = [&](const Inputs& in) {
          if (fixture.words[0] == "cross_attn") return attention(in[0], in[1], in[2]);
          return attention(
              in[0], {.causal = fixture.has("causal"), .key_padding_mask = fixture.has("padding") ? in[1] : Tensor()});
        };
        compare(fixture, dtype, run, &attention);
      }
    }
  CHECK(met == std::set<std::string>{"bert", "block", "cross_attn", "self_attn"});
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

TEST_CASE("parity with PyTorch: ten steps of every optimiser, and clipping") {
  std::size_t met = 0;
  for (const Fixture& fixture : fixtures("optim")) {
    if (fixture.words[0] == "clip") continue;
    const auto found = optimizers().find(fixture.name);
    REQUIRE_MESSAGE(found != optimizers().end(), fixture.name);
    ++met;
    for (const DType dtype : types()) {
      CAPTURE(fixture.name);
      CAPTURE(std::string(name_of(dtype)));
      const auto row = [&](const char* what, std::int64_t t) {
        const Tensor& all = fixture.tensors.at(what);
        return here(reshape(slice(all, 0, t, t + 1), all.shape().without(0)), dtype);
      };
      Tensor table = here(fixture.tensors.at("start"), dtype).set_requires_grad();
      Tensor other = row("start", 0).set_requires_grad();
      const auto optimizer = found->second({{"table", table}, {"other", other}});
      for (std::int64_t t = 0; t < 10; ++t) {
        const Tensor gradient = row("gradients", t);
        other.zero_grad();
        if (fixture.words[0] == "sparse") {
          const Tensor rows = row("rows", t);
          table.set_gradient(RowGrad{rows, embedding(gradient, rows), 5});
        } else {
          table.set_gradient(gradient);
          if (t % 2 == 0) other.set_gradient(reshape(slice(gradient, 0, 0, 1), {3}).clone());
        }
        optimizer->step();
        CHECK(worst(table.detach(), row("table", t)) <= forward_tolerance(dtype));
        CHECK(worst(other.detach(), row("other", t)) <= forward_tolerance(dtype));
      }
    }
  }
  CHECK(met == optimizers().size());

  for (const Fixture& fixture : fixtures("optim")) {
    if (fixture.words[0] != "clip") continue;
    for (const DType dtype : types()) {
      const Inputs gradients = fixture.inputs(dtype);
      std::vector<Tensor> parameters;
      for (const Tensor& gradient : gradients) {
        parameters.push_back(zeros(gradient.shape(), gradient).set_requires_grad());
        parameters.back().set_gradient(gradient.detach().clone());
      }
      const double norm = optim::clip_grad_norm(parameters, fixture.has("not") ? 1e3 : 0.7);
      CHECK(norm == doctest::Approx(fixture.tensors.at("norm").item()).epsilon(forward_tolerance(dtype)));
      for (std::size_t i = 0; i < 2; ++i)
        CHECK(worst(parameters[i].grad(), fixture.tensors.at("out" + std::to_string(i))) <= forward_tolerance(dtype));
    }
  }
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
  const Values losses = find(data, "losses").to_vector<double>();
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
  CHECK(losses.back() < 0.7 * losses.front());  // there was something to learn
}
