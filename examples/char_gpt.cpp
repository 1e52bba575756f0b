/// Character GPT: a small transformer learns to write licence texts, or whatever text it is given.
///
/// Two layers of causal attention over the last 64 characters. Attention sees a set; the order of the characters is in
/// the position table alone.

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <random>
#include <span>

#include "common.hpp"

namespace wg = wengert;
using wg::layers::PositionTable;

namespace {

constexpr std::int64_t context = 64, width = 64, heads = 4, depth = 2, batch = 16;

struct Model : wg::layers::Module {
  wg::layers::TransformerEmbedding embed;
  wg::layers::ModuleList<wg::layers::TransformerBlock> blocks;
  wg::layers::LayerNorm norm{{.normalized_shape = {width}}};
  wg::layers::Linear head;

  Model(std::int64_t characters, PositionTable positions)
      : embed({.vocab_size = characters,
               .max_seq_len = context,
               .embed_dim = width,
               .dropout = 0.1,
               .positions = positions}),
        head({.in_features = width, .out_features = characters}) {
    for (std::int64_t i = 0; i < depth; ++i)
      blocks.emplace_back({.embed_dim = width,
                           .num_heads = heads,
                           .feedforward_dim = 4 * width,
                           .dropout = 0.0,
                           .activation = wg::layers::Activation::gelu,
                           .norm_first = true});
    register_module("embed", embed);
    register_module("blocks", blocks);
    register_module("norm", norm);
    register_module("head", head);
  }
  wg::Tensor operator()(const wg::Tensor& ids) const {
    wg::Tensor x = embed(ids);
    for (std::size_t i = 0; i < blocks.size(); ++i) x = blocks[i](x, {.causal = true});
    return head(norm(x));
  }
};

struct Batch {
  wg::Tensor ids, next;  // (B, T)
};

/// The characters from each of `starts` on, and those that follow them.
Batch make_batch(const std::vector<std::int64_t>& text, const std::vector<std::int64_t>& starts) {
  std::vector<std::int64_t> ids, next;
  for (const std::int64_t start : starts) {
    ids.insert(ids.end(), text.begin() + start, text.begin() + start + context);
    next.insert(next.end(), text.begin() + start + 1, text.begin() + start + context + 1);
  }
  const wg::Shape shape{std::ssize(starts), context};
  return {wg::tensor(ids, shape), wg::tensor(next, shape)};
}

/// Over all of the text, in pieces of 64 characters.
example::Figures evaluate(Model& model, const wg::data::TextPart& text) {
  const std::vector<std::int64_t> starts = text.windows(context + 1, context);
  const std::int64_t count = std::ssize(starts), rows = 4 * batch;
  double loss = 0.0, hits = 0.0;
  model.eval();
  for (std::int64_t first = 0; first < count; first += rows) {
    const Batch data = make_batch(text.ids, {starts.begin() + first, starts.begin() + std::min(first + rows, count)});
    const wg::Tensor logits = model(data.ids);
    loss += wg::cross_entropy(logits, data.next, {.reduction = wg::Reduction::sum}).item();
    const auto answers = wg::argmax(logits, -1).to_vector<std::int64_t>(), right = data.next.to_vector<std::int64_t>();
    for (std::size_t i = 0; i < right.size(); ++i) hits += answers[i] == right[i];
  }
  model.train();
  const auto characters = static_cast<double>(count * context);
  return {{"accuracy", hits / characters}, {"loss", loss / characters}};
}

wg::data::TextCorpus corpus;

/// What the model writes when it is given the beginning of the validation text: `length` characters, each drawn from
/// its predictions, the unlikely ones made rarer.
std::string write(Model& model, std::int64_t length) {
  constexpr double temperature = 0.7;
  std::vector<std::int64_t> ids(corpus.validation.ids.begin(), corpus.validation.ids.begin() + context);
  model.eval();
  for (std::int64_t i = 0; i < length; ++i) {
    const wg::Tensor seen = wg::tensor(std::span<const std::int64_t>(ids).last(context), {1, context});
    const wg::Tensor logits = wg::slice(model(seen), 1, -1);
    const wg::Tensor chances = wg::softmax(wg::reshape(logits / temperature, {-1}));
    ids.push_back(wg::multinomial(chances, 1).item<std::int64_t>());
  }
  model.train();
  return wg::data::to_utf8(corpus.vocabulary.decode(std::span(ids).subspan(context)));
}

example::Run train(const example::Options& options, PositionTable positions) {
  wg::manual_seed(options.seed);
  std::mt19937_64 random(options.seed);
  const std::vector<std::int64_t> windows = corpus.train.windows(context + 1);
  std::uniform_int_distribution<std::size_t> any_window(0, windows.size() - 1);

  Model model(corpus.vocabulary.size(), positions);
  // The table starts as noise of some size; a higher rate and some decay let it forget that noise. The tidy table costs
  // a little loss.
  const auto is_position = [](std::string_view name) { return name.starts_with("embed.pos_embed"); };
  const wg::NamedTensors parameters = model.named_parameters();
  wg::optim::AdamW optimizer(wg::select(parameters, std::not_fn(is_position)),
                             {.lr = 3e-3, .beta2 = 0.99, .weight_decay = 0.0});
  if (const wg::NamedTensors table = wg::select(parameters, is_position); !table.empty())
    optimizer.add_group({.parameters = table, .lr = 9e-3, .weight_decay = 0.5});
  optimizer.set_schedule([steps = options.steps](std::int64_t step) {
    return wg::optim::linear_warmup(step, 50) * wg::optim::cosine_decay(step, steps);
  });

  example::Run run;
  const wg::Tensor& table = model.embed.pos_embed.weight;
  run.before = evaluate(model, corpus.validation);
  if (table) run.start = wg::report::to_matrix(table);

  auto progress = example::progress(options, positions);
  std::vector<std::int64_t> starts(batch);
  for (std::int64_t step = 1; step <= options.steps; ++step) {
    for (std::int64_t& start : starts) start = windows[any_window(random)];
    const Batch data = make_batch(corpus.train.ids, starts);
    wg::Tensor loss;
    {
      wg::Tape tape;
      loss = wg::cross_entropy(model(data.ids), data.next);
      tape.backward(loss);
    }
    optimizer.step();
    optimizer.zero_grad();
    run.record(step, loss, options.backends.empty() ? 10 : 1);
    progress.update(step, loss);
  }

  run.after = evaluate(model, corpus.validation);
  if (table) run.table = wg::report::to_matrix(table);
  if (positions == PositionTable::learned) run.text = write(model, 400);
  return run;
}

void char_gpt(const example::Options& options) {
  corpus = wg::data::read_corpus(options.text, 0.1, context + 1);
  if (!options.backends.empty()) {
    example::save(options, example::train_on_backends(options, train),
                  "Character GPT: the same training on every backend");
    return;
  }
  const example::Comparison comparison =
      example::compare(options, train, {PositionTable::sinusoidal, PositionTable::frozen, PositionTable::none});
  example::print(comparison);
  fmt::print("\nthe model writes:\n{}\n\n", comparison.learned.text);
  example::save(options, comparison, "Character GPT: the position table of a transformer that writes",
                [&] { return example::cosines_over_distance(comparison.learned); });
}

}  // namespace

int main(int argc, char** argv) {
  return example::run(argc, argv,
                      {.name = "char_gpt",
                       .about = "A transformer of two layers learns to write text, one character at a time.",
                       .steps = 1000,
                       .text = "/usr/share/common-licenses",
                       .tolerance = 1e-3},
                      char_gpt);
}
