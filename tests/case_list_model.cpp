// Linear algebra, losses, embedding and dropout.

#include <fmt/format.h>

#include "case_list.hpp"

namespace wengert::cases {

void add_linear(std::vector<Case>& cases) {
  struct Product {
    Shape a, b, out;
  };
  const Product products[] = {
      {{1, 1}, {1, 1}, {1, 1}},
      {{2, 3}, {3, 4}, {2, 4}},
      {{7, 17}, {17, 3}, {7, 3}},
      {{5, 33}, {33, 2}, {5, 2}},
      {{3, 129}, {129, 1}, {3, 1}},
      {{17}, {17}, {}},
      {{3}, {3, 7}, {7}},
      {{7, 3}, {3}, {7}},
      {{2, 3, 4}, {4}, {2, 3}},
      {{4}, {2, 4, 5}, {2, 5}},
      {{2, 3, 4}, {4, 5}, {2, 3, 5}},
      {{2, 3, 4}, {1, 4, 5}, {2, 3, 5}},
      {{3, 4}, {2, 4, 5}, {2, 3, 5}},
      {{1, 3, 4}, {2, 4, 5}, {2, 3, 5}},
      {{2, 3, 4}, {2, 4, 5}, {2, 3, 5}},
      {{2, 1, 3, 4}, {3, 4, 2}, {2, 3, 3, 2}},
      {{3, 1, 4}, {2, 1, 4, 2}, {2, 3, 1, 2}},
      {{1, 3, 2, 4}, {3, 4, 2}, {1, 3, 2, 2}},
      {{2, 0}, {0, 3}, {2, 3}},
      {{0, 2}, {2, 3}, {0, 3}},
      {{2, 3}, {3, 0}, {2, 0}},
      {{0, 2, 3}, {0, 3, 2}, {0, 2, 2}},
      {{0, 2, 3}, {3, 2}, {0, 2, 2}},
      {{2, 3}, {0, 3, 2}, {0, 2, 2}},
  };
  for (const Product& product : products)
    cases.push_back({.name = fmt::format("matmul {} {}", product.a.str(), product.b.str()),
                     .inputs = {{product.a}, {product.b}},
                     .run = [](const Inputs& in) { return matmul(in[0], in[1]); },
                     .shape = product.out});
  for (const bool left : {true, false})
    cases.push_back({.name = fmt::format("matmul with a constant on the {}", left ? "left" : "right"),
                     .inputs = {{{2, 3}, Values::normal, !left}, {{3, 4}, Values::normal, left}},
                     .run = [](const Inputs& in) { return matmul(in[0], in[1]); },
                     .shape = {2, 4}});
  cases.push_back({.name = "matmul of x and x",
                   .inputs = {{{3, 3}}},
                   .run = [](const Inputs& in) { return matmul(in[0], in[0]); },
                   .shape = {3, 3}});

  struct Layer {
    Shape x;
    std::int64_t out;
    Shape shape;
  };
  const Layer layers[] = {
      {{3}, 2, {2}},
      {{1, 1}, 1, {1, 1}},
      {{4, 7}, 3, {4, 3}},
      {{2, 3, 17}, 5, {2, 3, 5}},
      {{33, 3}, 7, {33, 7}},
      {{129, 2}, 2, {129, 2}},
      {{0, 3}, 2, {0, 2}},
      {{2, 0}, 3, {2, 3}},
      {{2, 2, 3, 4}, 1, {2, 2, 3, 1}},
  };
  for (const Layer& layer : layers) {
    const Shape weight{layer.out, layer.x.size(-1)};
    cases.push_back({.name = fmt::format("linear {} to {}", layer.x.str(), layer.out),
                     .inputs = {{layer.x}, {weight}, {{layer.out}}},
                     .run = [](const Inputs& in) { return linear(in[0], in[1], in[2]); },
                     .shape = layer.shape});
    cases.push_back({.name = fmt::format("linear {} to {} without bias", layer.x.str(), layer.out),
                     .inputs = {{layer.x}, {weight}},
                     .run = [](const Inputs& in) { return linear(in[0], in[1]); },
                     .shape = layer.shape});
  }
  cases.push_back({.name = "linear with a frozen weight",
                   .inputs = {{{4, 3}}, {{2, 3}, Values::normal, false}, {{2}}},
                   .run = [](const Inputs& in) { return linear(in[0], in[1], in[2]); },
                   .shape = {4, 2}});
}

void add_losses(std::vector<Case>& cases) {
  struct Soft {
    Shape shape;
    std::int64_t axis;
  };
  const Soft soft[] = {{{1}, 0},     {{7}, 0},       {{3, 17}, -1}, {{3, 7}, 0}, {{2, 3, 5}, 1},
                       {{4, 33}, 1}, {{2, 129}, -1}, {{0, 3}, 1},   {{3, 0}, 1}};
  for (const bool log : {false, true})
    for (const Soft& at : soft)
      cases.push_back({.name = fmt::format("{} {} along {}", log ? "log_softmax" : "softmax", at.shape.str(), at.axis),
                       .inputs = {{at.shape}},
                       .run = [log, axis = at.axis](
                                  const Inputs& in) { return log ? log_softmax(in[0], axis) : softmax(in[0], axis); },
                       .shape = at.shape});

  struct Labels {
    const char* name;
    Shape logits;
    std::vector<std::int64_t> values;
    std::int64_t ignore;
    DType dtype;
  };
  const Labels labels[] = {
      {"one row", {1, 3}, {2}, -100, DType::int64},
      {"one class", {3, 1}, {0, 0, 0}, -100, DType::int64},
      {"rows", {4, 7}, {6, 0, 3, 3}, -100, DType::int64},
      {"int32 labels", {4, 7}, {6, 0, 3, 3}, -100, DType::int32},
      {"rows of rows", {2, 3, 17}, {16, 0, 3, 5, 5, 1}, -100, DType::int64},
      {"no row axis", {5}, {4}, -100, DType::int64},
      {"ignore -100", {4, 3}, {-100, 1, -100, 2}, -100, DType::int64},
      {"ignore 255", {4, 3}, {255, 1, 0, 255}, 255, DType::int32},
      {"ignore 1", {4, 3}, {0, 1, 2, 1}, 1, DType::int64},
      {"one left", {4, 3}, {-100, -100, 0, -100}, -100, DType::int64},
      {"all ignored", {2, 3}, {-100, -100}, -100, DType::int64},
      {"no rows", {0, 3}, {}, -100, DType::int64},
  };
  for (const Labels& which : labels) {
    const Shape lead = which.logits.without(-1);
    for (const auto& [name, reduction] :
         {std::pair{"none", Reduction::none}, {"sum", Reduction::sum}, {"mean", Reduction::mean}})
      cases.push_back({.name = fmt::format("cross_entropy {}, {}", which.name, name),
                       .inputs = {{which.logits}, ids(which.values, lead, which.dtype)},
                       .run =
                           [reduction = reduction, ignore = which.ignore](const Inputs& in) {
                             return cross_entropy(in[0], in[1], {.ignore_index = ignore, .reduction = reduction});
                           },
                       .shape = reduction == Reduction::none ? lead : Shape{}});
  }
  for (const double smoothing : {0.1, 0.9, 1.0})
    for (const auto& [name, reduction] :
         {std::pair{"none", Reduction::none}, {"sum", Reduction::sum}, {"mean", Reduction::mean}})
      cases.push_back({.name = fmt::format("cross_entropy smoothed by {}, {}", smoothing, name),
                       .inputs = {{{5, 17}}, ids({3, -100, 16, 0, 3}, {5})},
                       .run =
                           [reduction = reduction, smoothing](const Inputs& in) {
                             return cross_entropy(in[0], in[1], {.reduction = reduction, .label_smoothing = smoothing});
                           },
                       .shape = reduction == Reduction::none ? Shape{5} : Shape{}});
  std::vector<std::int64_t> many;
  for (std::int64_t i = 0; i < 33; ++i) many.push_back(i * 7 % 5 == 4 ? -100 : i * 7 % 5);
  cases.push_back({.name = "cross_entropy of 33 rows",
                   .inputs = {{{33, 5}}, ids(many, {33})},
                   .run = [](const Inputs& in) { return cross_entropy(in[0], in[1]); },
                   .shape = {}});

  struct Head {
    const char* name;
    Shape x;
    std::int64_t classes = 5;
    CrossEntropyOptions options{};
  };
  const Head heads[] = {
      {"one row", {3}},
      {"rows", {4, 7}},
      {"sequences", {2, 3, 17}},
      {"more rows than one part", {257, 3}},
      {"no rows", {0, 3}, 5, {.reduction = Reduction::sum}},
      {"one class", {4, 3}, 1},
      {"width 0", {4, 0}},
      {"sum", {4, 7}, 33, {.reduction = Reduction::sum}},
      {"none", {4, 7}, 5, {.reduction = Reduction::none}},
      {"smoothed", {4, 7}, 5, {.label_smoothing = 0.3}},
      {"ignoring label 1", {9, 7}, 5, {.ignore_index = 1}},
  };
  for (const Head& head : heads) {
    const Shape lead = head.x.without(-1);
    std::vector<std::int64_t> classes;
    for (std::int64_t i = 0; i < lead.numel(); ++i) classes.push_back(i * 7 % head.classes);
    cases.push_back({.name = fmt::format("linear_cross_entropy: {}", head.name),
                     .inputs = {{head.x}, {{head.classes, head.x.size(-1)}}, ids(classes, lead)},
                     .run = [options = head.options](
                                const Inputs& in) { return linear_cross_entropy(in[0], in[1], in[2], options); },
                     .shape = head.options.reduction == Reduction::none ? lead : Shape{},
                     .finite_differences = lead.numel() < 100});
  }

  for (const Shape& shape : {Shape{}, Shape{7}, Shape{3, 17}, Shape{0, 3}})
    for (const auto& [name, reduction] :
         {std::pair{"none", Reduction::none}, {"sum", Reduction::sum}, {"mean", Reduction::mean}}) {
      if (shape.numel() == 0 && reduction == Reduction::mean) continue;  // NaN: tested by value elsewhere
      cases.push_back({.name = fmt::format("mse_loss {}, {}", shape.str(), name),
                       .inputs = {{shape}, {shape, Values::positive}},
                       .run = [reduction = reduction](const Inputs& in) { return mse_loss(in[0], in[1], reduction); },
                       .shape = reduction == Reduction::none ? shape : Shape{}});
    }
}

namespace {

// `count` ids below `rows`, with repeats as soon as count exceeds a few.
std::vector<std::int64_t> some_ids(std::int64_t count, std::int64_t rows) {
  std::vector<std::int64_t> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back((i * i + 3 * i + 1) % rows);
  return values;
}

void add_lookups(std::vector<Case>& cases) {
  struct Lookup {
    const char* name;
    Shape table;
    Input where;
    std::optional<std::int64_t> padding{};
  };
  const Lookup lookups[] = {
      {"one id", {3, 2}, ids({2}, {1})},
      {"a scalar id", {3, 7}, ids({1}, {})},
      {"ids without repeats", {5, 3}, ids({4, 0, 2}, {3})},
      {"ids with repeats", {5, 3}, ids({4, 0, 4, 4, 1, 0}, {2, 3})},
      {"int32 ids", {5, 3}, ids({4, 0, 4, 4, 1, 0}, {2, 3}, DType::int32)},
      {"three axes of ids", {7, 1}, ids(some_ids(12, 7), {2, 3, 2})},
      {"width 17", {5, 17}, ids(some_ids(7, 5), {7})},
      {"width 33", {3, 33}, ids(some_ids(4, 3), {4})},
      {"31 repeats", {2, 3}, ids(std::vector<std::int64_t>(31, 1), {31})},
      {"32 repeats", {2, 3}, ids(std::vector<std::int64_t>(32, 1), {32})},
      {"33 repeats", {2, 3}, ids(std::vector<std::int64_t>(33, 1), {33})},
      {"129 ids", {11, 2}, ids(some_ids(129, 11), {129})},
      {"ids in order", {33, 2}, ids({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, {17})},
      {"padding", {4, 3}, ids({0, 1, 0, 3, 1}, {5}), 0},
      {"only padding", {4, 3}, ids({2, 2}, {2}), 2},
      {"padding that does not occur", {4, 3}, ids({0, 1}, {2}), 3},
      {"no ids", {10, 4}, ids({}, {0})},
      {"empty axis of ids", {10, 4}, ids({}, {2, 0})},
      {"width 0", {10, 0}, ids({0, 3}, {2})},
      {"no rows", {0, 4}, ids({}, {0})},
  };
  for (const Lookup& lookup : lookups) {
    Case one{.name = fmt::format("embedding: {}", lookup.name),
             .inputs = {{lookup.table}, lookup.where},
             .run = [padding = lookup.padding](
                        const Inputs& in) { return embedding(in[0], in[1], {.padding_idx = padding}); },
             .shape = lookup.where.shape + lookup.table[1]};
    if (lookup.padding)  // its gradient is zero by definition
      one.gradcheck.skip = [row = *lookup.padding, width = lookup.table[1]](std::size_t, std::int64_t e) {
        return e / width == row;
      };
    cases.push_back(std::move(one));
  }
}

void add_dropouts(std::vector<Case>& cases) {
  const Shape shapes[] = {{}, {1}, {7}, {17}, {127}, {128}, {129}, {3, 100}, {0}, {2, 0}};
  for (const double p : {0.0, 0.1, 0.5, 0.9, 1.0})
    for (const Shape& shape : shapes)
      cases.push_back({.name = fmt::format("dropout {} {}", p, shape.str()),
                       .inputs = {{shape}},
                       .run =
                           [p](const Inputs& in) {
                             Generator generator(7);
                             const GeneratorScope scope(generator);
                             return dropout(in[0], p);
                           },
                       .shape = shape});
  cases.push_back({.name = "dropout in eval",
                   .inputs = {{{17}}},
                   .run = [](const Inputs& in) { return dropout(in[0], 0.5, false); },
                   .shape = {17}});
}

void add_input_layers(std::vector<Case>& cases) {
  struct Layer {
    const char* name;
    Input tokens;
    std::int64_t width = 3;
    EmbedDropoutOptions options{};
    std::vector<std::int64_t> places{};
    Shape places_shape{};
    DType places_type = DType::int64;
  };
  const Layer layers[] = {
      {"one token", ids({4}, {1, 1}), 1},
      {"one sequence", ids(some_ids(5, 7), {5})},
      {"batch 1", ids(some_ids(5, 7), {1, 5})},
      {"batch 2", ids(some_ids(10, 7), {2, 5}), 7},
      {"batch 3, int32", ids(some_ids(15, 7), {3, 5}, DType::int32)},
      {"batch 31", ids(some_ids(62, 7), {31, 2}), 1},
      {"batch 33", ids(some_ids(66, 7), {33, 2}), 1},
      {"width 17", ids(some_ids(6, 7), {2, 3}), 17},
      {"p 0.1", ids(some_ids(10, 7), {2, 5}), 17, {.p = 0.1}},
      {"p 0.5, one sequence", ids(some_ids(8, 7), {8}), 3, {.p = 0.5}},
      {"p 0.9", ids(some_ids(10, 7), {2, 5}), 17, {.p = 0.9}},
      {"p 0.5, 127 elements", ids({0}, {1, 1}), 127, {.p = 0.5}},
      {"p 0.5, 128 elements", ids({0, 1}, {2, 1}), 64, {.p = 0.5}},
      {"p 0.5, 129 elements", ids({0, 1, 6}, {3, 1}), 43, {.p = 0.5}},
      {"p 0.5, batch 33", ids(some_ids(66, 7), {33, 2}), 3, {.p = 0.5}},
      {"p 1", ids(some_ids(10, 7), {2, 5}), 3, {.p = 1.0}},
      {"eval", ids(some_ids(10, 7), {2, 5}), 3, {.p = 0.5, .training = false}},
      {"padding", ids({0, 1, 0, 0, 5, 1}, {2, 3}), 3, {.p = 0.1, .padding_idx = 0}},
      {"offset 3", ids(some_ids(10, 7), {2, 5}), 3, {.offset = 3}},
      {"offset 3, p 0.5", ids(some_ids(10, 7), {2, 5}), 3, {.p = 0.5, .offset = 3}},
      {"positions (T)", ids(some_ids(10, 7), {2, 5}), 3, {.p = 0.1}, {4, 4, 0, 7, 1}, {5}},
      {"positions (B, T)", ids(some_ids(10, 7), {2, 5}), 3, {.p = 0.1}, {4, 4, 0, 7, 1, 0, 1, 2, 3, 4}, {2, 5}},
      {"int32 positions", ids(some_ids(10, 7), {2, 5}), 3, {}, {4, 4, 0, 7, 1}, {5}, DType::int32},
      {"positions of one sequence", ids(some_ids(3, 7), {3}), 3, {}, {7, 0, 7}, {3}},
      {"no tokens", ids({}, {2, 0}), 3, {.p = 0.5}},
      {"no sequences", ids({}, {0, 2}), 3, {.p = 0.5}},
      {"width 0", ids({1, 2}, {1, 2}), 0, {.p = 0.5}},
  };
  for (const Layer& layer : layers) {
    Case one{.name = fmt::format("embed_dropout: {}", layer.name),
             .inputs = {{{7, layer.width}}, {{8, layer.width}}, layer.tokens},
             .run = {},
             .shape = layer.tokens.shape + layer.width};
    const bool placed = !layer.places.empty();
    if (placed) one.inputs.push_back(ids(layer.places, layer.places_shape, layer.places_type));
    one.run = [options = layer.options, placed](const Inputs& in) mutable {
      Generator generator(7);
      const GeneratorScope scope(generator);
      EmbedDropoutOptions now = options;
      if (placed) now.position_ids = in[3];
      return embed_dropout(in[0], in[1], in[2], now);
    };
    if (layer.options.padding_idx)
      one.gradcheck.skip = [row = *layer.options.padding_idx, width = layer.width](std::size_t input, std::int64_t e) {
        return input == 0 && e / width == row;
      };
    cases.push_back(std::move(one));
  }
}

}  // namespace

void add_embeddings(std::vector<Case>& cases) {
  add_lookups(cases);
  add_dropouts(cases);
  add_input_layers(cases);
}

}  // namespace wengert::cases
