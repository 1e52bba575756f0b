// What PyTorch computes, from the files of parity/make.py: operations and their gradients. Runs on every backend in
// float32, and in float64 where the backend has it.

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "parity_tools.hpp"
#include "wengert/ops.hpp"

using namespace parity;

namespace {

// By the first word of a case's name; the other words are options.

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

CrossEntropyOptions cross_entropy_options(const Fixture& fixture) {
  return {.ignore_index = std::stoll(fixture.words[2]),
          .reduction = reduction_of(fixture.words[1]),
          .label_smoothing = std::stod(fixture.words[3])};
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
       [](const Inputs& in, const Fixture& f) { return cross_entropy(in[0], in[1], cross_entropy_options(f)); }},
      {"linear_cross_entropy",
       [](const Inputs& in, const Fixture& f) {
         return linear_cross_entropy(in[0], in[1], in[2], cross_entropy_options(f));
       }},
      {"embed_dropout",
       [](const Inputs& in, const Fixture& f) {
         EmbedDropoutOptions options{.offset = 2};
         if (f.words.back() != "None") options.padding_idx = std::stoll(f.words.back());
         return embed_dropout(in[0], in[1], in[2], options);
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
         AttentionOptions options{.causal = f.has("causal"), .key_mask = in.size() > 3 ? in[3].detach() : Tensor()};
         if (f.has("scale")) options.scale = 0.3;
         return scaled_dot_product_attention(in[0], in[1], in[2], options);
       }},
  };
  return all;
}

}  // namespace

TEST_CASE("parity with PyTorch: operations and their gradients") {
  Cases cases("ops", "operations");
  std::set<std::string> met;
  for (const Fixture& fixture : cases.all()) {
    const auto found = operations().find(fixture.words[0]);
    REQUIRE_MESSAGE(found != operations().end(), fixture.name);
    met.insert(fixture.words[0]);
    for (const DType dtype : types())
      cases.compare(fixture, dtype, [&](const Inputs& in) { return found->second(in, fixture); });
  }
  CHECK(met.size() == operations().size());
  cases.finish();
}
