/// Next character: real text, and still no attention.
///
/// From the last 16 characters the model predicts the next one: x = dropout(token + position), a hidden layer, the mean
/// over the 16 places, an output layer. The mean forgets the order; only the position table can tell near from far.

#include <algorithm>
#include <random>

#include "common.hpp"

namespace wg = wengert;
using wg::layers::PositionTable;

namespace {

constexpr std::int64_t context = 16, width = 64, hidden = 256, batch = 128;
constexpr std::int64_t stride = 7;  // validation looks at every seventh place

struct Model : wg::layers::Module {
  wg::layers::TransformerEmbedding embed;
  wg::layers::Linear inner{{.in_features = width, .out_features = hidden}};
  wg::layers::Linear outer;

  Model(std::int64_t characters, PositionTable positions)
      : embed({.vocab_size = characters,
               .max_seq_len = context,
               .embed_dim = width,
               .dropout = 0.1,
               .positions = positions}),
        outer({.in_features = hidden, .out_features = characters}) {
    register_module("embed", embed);
    register_module("inner", inner);
    register_module("outer", outer);
  }
  wg::Tensor operator()(const wg::Tensor& ids) const { return outer(wg::mean(wg::relu(inner(embed(ids))), 1)); }
};

struct Batch {
  wg::Tensor ids;   // (B, 16)
  wg::Tensor next;  // (B)
};

/// Contexts that begin at `starts`, and the character after each.
Batch make_batch(const std::vector<std::int64_t>& text, const std::vector<std::int64_t>& starts) {
  std::vector<std::int64_t> ids, next;
  for (const std::int64_t start : starts) {
    ids.insert(ids.end(), text.begin() + start, text.begin() + start + context);
    next.push_back(text[static_cast<std::size_t>(start + context)]);
  }
  const auto rows = static_cast<std::int64_t>(starts.size());
  return {wg::tensor<std::int64_t>(ids, {rows, context}), wg::tensor<std::int64_t>(next, {rows})};
}

example::Figures evaluate(Model& model, const wg::data::TextPart& text) {
  const std::vector<std::int64_t> starts = text.windows(context + 1, stride);
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
  return {{"accuracy", hits / static_cast<double>(count)}, {"loss", loss / static_cast<double>(count)}};
}

/// The lengths of the table's rows at the far end and next to the character that is asked for.
void add_norm_figures(example::Figures& figures, const wg::report::Matrix& table) {
  const std::vector<double> norms = wg::report::row_norms(table);
  figures.emplace_back("norm_far", norms.front());
  figures.emplace_back("norm_near", norms.back());
}

wg::data::TextCorpus corpus;

example::Run train(const example::Options& options, PositionTable positions) {
  wg::manual_seed(options.seed);
  std::mt19937_64 random(options.seed);
  const std::vector<std::int64_t> windows = corpus.train.windows(context + 1);
  std::uniform_int_distribution<std::size_t> any_window(0, windows.size() - 1);

  Model model(corpus.vocabulary.size(), positions);
  // The table starts as noise of some size; a higher rate and some decay let it forget that noise.
  const auto is_position = [](std::string_view name) { return name.starts_with("embed.pos_embed"); };
  const wg::NamedTensors parameters = model.named_parameters();
  wg::optim::AdamW optimizer(wg::select(parameters, std::not_fn(is_position)),
                             {.lr = 1e-2, .beta2 = 0.99, .weight_decay = 0.0});
  if (const wg::NamedTensors table = wg::select(parameters, is_position); !table.empty())
    optimizer.add_group({.parameters = table, .lr = 3e-2, .weight_decay = 0.1});
  optimizer.set_schedule([steps = options.steps](std::int64_t step) {
    return wg::optim::linear_warmup(step, 50) * wg::optim::cosine_decay(step, steps);
  });

  example::Run run;
  const wg::Tensor& table = model.embed.pos_embed.weight;
  run.before = evaluate(model, corpus.validation);
  if (table) run.start = wg::report::to_matrix(table);
  if (table) add_norm_figures(run.before, *run.start);

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
    run.record(step, loss);
    progress.update(step, loss);
  }

  run.after = evaluate(model, corpus.validation);
  if (table) run.table = wg::report::to_matrix(table);
  if (table) add_norm_figures(run.after, *run.table);
  return run;
}

wg::report::Lines recency(const example::Run& learned) {
  wg::report::Lines panel{
      .title = "Length of the table's rows", .x_label = "position (15: nearest)", .y_label = "norm"};
  for (const auto& [name, table] : {std::pair{"after", &learned.table}, std::pair{"before", &learned.start}}) {
    wg::report::Curve curve{.name = name, .y = wg::report::row_norms(table->value())};
    for (std::int64_t i = 0; i < context; ++i) curve.x.push_back(static_cast<double>(i));
    panel.curves.push_back(curve);
  }
  return panel;
}

void next_char(const example::Options& options) {
  corpus = wg::data::read_corpus(options.text, 0.1, context + 1);
  const example::Comparison comparison = example::compare(options, train);
  example::print(comparison);
  example::save(options, comparison, "Next character: the position table learns recency",
                [&] { return recency(comparison.learned); });
}

}  // namespace

int main(int argc, char** argv) {
  return example::run(argc, argv,
                      {.name = "next_char",
                       .about = "Predicts the next character of real text from the last 16, without attention.",
                       .steps = 1500,
                       .text = "/usr/share/common-licenses"},
                      next_char);
}
