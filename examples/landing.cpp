/// Landing: a position table becomes a number line that nobody gave it.
///
/// Token t at position i; the model has to say where t steps from here lead: i + t. It sees token + position, through
/// dropout, and one linear layer: nothing else could know the order of the positions.

#include <algorithm>
#include <cmath>
#include <random>

#include "common.hpp"

namespace wg = wengert;
using wg::layers::PositionTable;

namespace {

constexpr std::int64_t tokens = 8, length = 64, width = 64, batch = 8;
constexpr std::int64_t places = length + tokens - 1;  // where one can land

struct Model : wg::layers::Module {
  wg::layers::TransformerEmbedding embed;
  wg::layers::Linear head{{.in_features = width, .out_features = places}};

  explicit Model(PositionTable positions)
      : embed(
            {.vocab_size = tokens, .max_seq_len = length, .embed_dim = width, .dropout = 0.1, .positions = positions}) {
    register_module("embed", embed);
    register_module("head", head);
    wg::normal_(head.weight, 0.0, 1 / std::sqrt(static_cast<double>(width)));
    head.bias.zero_();
  }
  wg::Tensor operator()(const wg::Tensor& ids) const { return head(embed(ids)); }
};

struct Batch {
  wg::Tensor ids, landings;  // (B, T)
};

/// `token(row)` at each position of each row.
template <class Token>
Batch make_batch(std::int64_t rows, Token token) {
  std::vector<std::int64_t> ids, landings;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t position = 0; position < length; ++position) {
      ids.push_back(token(row));
      landings.push_back(position + ids.back());
    }
  }
  return {wg::tensor<std::int64_t>(ids, {rows, length}), wg::tensor<std::int64_t>(landings, {rows, length})};
}

/// Over every token at every position.
example::Figures evaluate(Model& model) {
  const Batch all = make_batch(tokens, [](std::int64_t row) { return row; });
  model.eval();
  const wg::Tensor logits = model(all.ids);
  model.train();
  const auto answers = wg::argmax(logits, -1).to_vector<std::int64_t>(), right = all.landings.to_vector<std::int64_t>();
  double hits = 0.0;
  for (std::size_t i = 0; i < right.size(); ++i) hits += answers[i] == right[i];
  return {{"accuracy", hits / static_cast<double>(right.size())},
          {"loss", wg::cross_entropy(logits, all.landings).item()}};
}

/// Is the table a line, and does a step along it mean the same as a step from one token to the next?
void add_line_figures(example::Figures& figures, const Model& model) {
  const wg::report::Matrix table = wg::report::to_matrix(model.embed.pos_embed.weight);
  const wg::report::Matrix scores = wg::report::transpose(wg::report::principal_components(table).scores);
  std::vector<double> index;
  for (std::int64_t i = 0; i < length; ++i) index.push_back(static_cast<double>(i));
  figures.emplace_back("spearman", std::abs(wg::report::spearman(scores.row(0), index)));
  figures.emplace_back(
      "step_cosine", wg::report::cosine(wg::report::mean_step(table),
                                        wg::report::mean_step(wg::report::to_matrix(model.embed.token_embed.weight))));
}

example::Run train(const example::Options& options, PositionTable positions) {
  wg::manual_seed(options.seed);
  std::mt19937_64 random(options.seed);
  std::uniform_int_distribution<std::int64_t> any_token(0, tokens - 1);

  Model model(positions);
  wg::optim::Adam optimizer(model.named_parameters(), {.lr = 0.1});
  optimizer.set_schedule([steps = static_cast<double>(options.steps)](std::int64_t step) {
    return std::min(1.0, 2 * (1 - static_cast<double>(step) / (steps + 1)));
  });

  example::Run run;
  const wg::Tensor& table = model.embed.pos_embed.weight;
  run.before = evaluate(model);
  if (table) run.start = wg::report::to_matrix(table);
  if (table) add_line_figures(run.before, model);

  auto progress = example::progress(options, positions);
  for (std::int64_t step = 1; step <= options.steps; ++step) {
    const Batch data = make_batch(batch, [&](std::int64_t) { return any_token(random); });
    wg::Tensor loss;
    {
      wg::Tape tape;
      loss = wg::cross_entropy(model(data.ids), data.landings);
      tape.backward(loss);
    }
    optimizer.step();
    optimizer.zero_grad();
    run.record(step, loss);
    progress.update(step, loss);
  }

  run.after = evaluate(model);
  if (table) run.table = wg::report::to_matrix(table);
  if (table) add_line_figures(run.after, model);
  return run;
}

/// The first principal component of the table, before and after.
wg::report::Lines number_line(const example::Run& learned) {
  wg::report::Lines panel{.title = "First principal component", .x_label = "position", .y_label = "score"};
  for (const auto& [name, table] : {std::pair{"after", &learned.table}, std::pair{"before", &learned.start}}) {
    const wg::report::Matrix scores = wg::report::transpose(wg::report::principal_components(table->value()).scores);
    wg::report::Curve curve{.name = name, .y = {scores.row(0).begin(), scores.row(0).end()}};
    for (std::int64_t i = 0; i < length; ++i) curve.x.push_back(static_cast<double>(i));
    panel.curves.push_back(curve);
  }
  return panel;
}

void landing(const example::Options& options) {
  const example::Comparison comparison = example::compare(options, train);
  example::print(comparison);
  example::save(options, comparison, "Landing: predict position + token",
                [&] { return number_line(comparison.learned); });
}

}  // namespace

int main(int argc, char** argv) {
  return example::run(argc, argv,
                      {.name = "landing",
                       .about = "Learns to add token and position; the position table becomes a number line.",
                       .steps = 1500},
                      landing);
}
