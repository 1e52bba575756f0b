// Layer norm and attention.

#include <fmt/format.h>

#include "case_list.hpp"

namespace wengert::cases {

void add_normalization(std::vector<Case>& cases) {
  struct Normal {
    Shape x, over;
  };
  const Normal normals[] = {
      {{1}, {1}},       {{3, 1}, {1}},          {{7}, {7}},        {{3, 2}, {2}},       {{2, 3, 17}, {17}},
      {{4, 33}, {33}},  {{33, 3}, {3}},         {{2, 129}, {129}}, {{65, 7}, {7}},      {{2, 3, 5}, {3, 5}},
      {{3, 5}, {3, 5}}, {{2, 2, 3, 4}, {3, 4}}, {{0, 3}, {3}},     {{2, 0, 5}, {0, 5}}, {{3, 0}, {0}},
  };
  for (const Normal& normal : normals)
    for (const bool weight : {true, false})
      for (const bool bias : {true, false}) {
        Case one{.name = fmt::format("layer_norm {} over {}{}{}", normal.x.str(), normal.over.str(),
                                     weight ? ", weight" : "", bias ? ", bias" : ""),
                 .inputs = {{normal.x}},
                 .run = {},
                 .shape = normal.x,
                 .tolerance = 5e-5};
        if (weight) one.inputs.push_back({normal.over, Values::positive});
        if (bias) one.inputs.push_back({normal.over});
        one.run = [over = normal.over, weight, bias](const Inputs& in) {
          return layer_norm(in[0], over, weight ? in[1] : Tensor(), bias ? in.back() : Tensor());
        };
        cases.push_back(std::move(one));
      }
  cases.push_back({.name = "layer_norm, eps 0.5",
                   .inputs = {{{5, 7}}, {{7}}, {{7}}},
                   .run = [](const Inputs& in) { return layer_norm(in[0], 7, in[1], in[2], 0.5); },
                   .shape = {5, 7}});
  cases.push_back({.name = "layer_norm, only the bias learns",
                   .inputs = {{{5, 7}, Values::normal, false}, {{7}, Values::normal, false}, {{7}}},
                   .run = [](const Inputs& in) { return layer_norm(in[0], 7, in[1], in[2]); },
                   .shape = {5, 7}});
  cases.push_back({.name = "layer_norm, only the weight learns",
                   .inputs = {{{5, 7}, Values::normal, false}, {{7}}, {{7}, Values::normal, false}},
                   .run = [](const Inputs& in) { return layer_norm(in[0], 7, in[1], in[2]); },
                   .shape = {5, 7}});
}

namespace {

// Integers, 0 for every third key.
Input some_keys(std::int64_t batch, std::int64_t keys) {
  std::vector<std::int64_t> values;
  for (std::int64_t i = 0; i < batch * keys; ++i) values.push_back(i % 3 == 1 ? 0 : 1);
  return ids(values, {batch, keys});
}

}  // namespace

void add_attention(std::vector<Case>& cases) {
  struct Sizes {
    std::int64_t batch, heads, tq, tk, d;
  };
  // Lengths on both sides of a register and of a block of random numbers, and heads on both sides of a register.
  const Sizes sizes[] = {{1, 1, 1, 1, 1},   {2, 1, 3, 3, 2},   {2, 3, 5, 5, 7},   {1, 2, 7, 17, 3},
                         {1, 1, 17, 7, 17}, {1, 1, 33, 33, 8}, {1, 1, 3, 129, 4}, {1, 1, 4, 4, 33},
                         {0, 2, 3, 3, 4},   {1, 2, 0, 3, 4},   {2, 1, 3, 0, 4}};
  for (const Sizes& s : sizes)
    for (int variant = 0; variant < 8; ++variant) {
      const bool causal = variant % 2 == 1, masked = variant / 2 % 2 == 1, dropped = variant / 4 == 1;
      Case one{
          .name = fmt::format("attention {} x {}, {} to {}, d {}{}{}{}", s.batch, s.heads, s.tq, s.tk, s.d,
                              causal ? ", causal" : "", masked ? ", masked" : "", dropped ? ", dropped" : ""),
          .inputs = {{{s.batch, s.heads, s.tq, s.d}}, {{s.batch, s.heads, s.tk, s.d}}, {{s.batch, s.heads, s.tk, s.d}}},
          .run = {},
          .shape = {s.batch, s.heads, s.tq, s.d},
          .finite_differences = s.tq * s.tk < 500};
      if (masked) one.inputs.push_back(some_keys(s.batch, s.tk));
      one.run = [causal, masked, dropped](const Inputs& in) {
        Generator generator(7);
        const GeneratorScope scope(generator);
        return scaled_dot_product_attention(
            in[0], in[1], in[2],
            {.causal = causal, .key_mask = masked ? in[3] : Tensor(), .dropout = dropped ? 0.3 : 0.0});
      };
      cases.push_back(std::move(one));
    }
  for (const double p : {0.9, 1.0})
    cases.push_back({.name = fmt::format("attention, p {}", p),
                     .inputs = {{{1, 2, 3, 4}}, {{1, 2, 5, 4}}, {{1, 2, 5, 4}}},
                     .run =
                         [p](const Inputs& in) {
                           Generator generator(3);
                           const GeneratorScope scope(generator);
                           return scaled_dot_product_attention(in[0], in[1], in[2], {.dropout = p});
                         },
                     .shape = {1, 2, 3, 4}});
  cases.push_back({.name = "attention, scale and a mask that is added",
                   .inputs = {{{2, 2, 3, 4}}, {{2, 2, 5, 4}}, {{2, 2, 5, 4}}, {{2, 5}, Values::normal, false}},
                   .run =
                       [](const Inputs& in) {
                         return scaled_dot_product_attention(in[0], in[1], in[2], {.key_mask = in[3], .scale = -0.7});
                       },
                   .shape = {2, 2, 3, 4}});
  cases.push_back({.name = "attention of x to x, not in training",
                   .inputs = {{{1, 2, 5, 3}}},
                   .run =
                       [](const Inputs& in) {
                         return scaled_dot_product_attention(in[0], in[0], in[0], {.dropout = 0.5, .training = false});
                       },
                   .shape = {1, 2, 5, 3}});
  cases.push_back({.name = "attention with constant keys",
                   .inputs = {{{1, 2, 5, 3}}, {{1, 2, 4, 3}, Values::normal, false}, {{1, 2, 4, 3}}},
                   .run = [](const Inputs& in) { return scaled_dot_product_attention(in[0], in[1], in[2]); },
                   .shape = {1, 2, 5, 3}});

  struct Packed {
    std::int64_t batch, length, heads, d;
  };
  for (const Packed& s : {Packed{1, 1, 1, 1}, {2, 5, 3, 4}, {3, 17, 1, 8}, {1, 7, 2, 17}, {0, 3, 2, 2}, {2, 0, 2, 2}})
    for (const bool causal : {false, true})
      cases.push_back({.name = fmt::format("self_attention {} x {}, {} heads of {}{}", s.batch, s.length, s.heads, s.d,
                                           causal ? ", causal" : ""),
                       .inputs = {{{s.batch, s.length, 3 * s.heads * s.d}}, some_keys(s.batch, s.length)},
                       .run =
                           [causal, heads = s.heads](const Inputs& in) {
                             Generator generator(5);
                             const GeneratorScope scope(generator);
                             return self_attention(in[0], heads, {.causal = causal, .key_mask = in[1], .dropout = 0.2});
                           },
                       .shape = {s.batch, s.length, s.heads * s.d}});
}

}  // namespace wengert::cases
