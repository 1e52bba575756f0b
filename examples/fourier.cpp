/// Fourier regression: the demonstration whose answer is known.
///
/// At position p the model predicts sin and cos of 2 pi k p / T for k = 1 .. 4, plus a vector G[token]. One linear
/// layer reads token + position, so the table has to hold those eight waves; their theory says how similar its rows
/// become.

#include <cmath>
#include <numbers>
#include <random>

#include "common.hpp"

namespace wg = wengert;
using wg::layers::PositionTable;

namespace {

constexpr std::int64_t tokens = 16, length = 128, width = 64, batch = 8;
constexpr std::int64_t waves = 4, outputs = 2 * waves;

struct Model : wg::layers::Module {
  wg::layers::TransformerEmbedding embed;
  wg::layers::Linear head{{.in_features = width, .out_features = outputs}};

  explicit Model(PositionTable positions)
      : embed(
            {.vocab_size = tokens, .max_seq_len = length, .embed_dim = width, .dropout = 0.1, .positions = positions}) {
    register_module("embed", embed);
    register_module("head", head);
  }
  wg::Tensor operator()(const wg::Tensor& ids) const { return head(embed(ids)); }
};

/// (T, 8): the waves that the table has to find.
wg::report::Matrix wave_table() {
  wg::report::Matrix table{{}, length, outputs};
  for (std::int64_t p = 0; p < length; ++p) {
    for (std::int64_t k = 1; k <= waves; ++k) {
      const double angle = 2 * std::numbers::pi * static_cast<double>(k * p) / static_cast<double>(length);
      table.values.insert(table.values.end(), {std::sin(angle), std::cos(angle)});
    }
  }
  return table;
}

struct Task {
  wg::report::Matrix wave = wave_table();
  std::vector<float> token_part;  // (V, 8)
  explicit Task(std::mt19937_64& random) : token_part(tokens * outputs) {
    std::normal_distribution<float> normal(0.0F, 0.7F);
    for (float& value : token_part) value = normal(random);
  }
};

struct Batch {
  wg::Tensor ids;      // (B, T)
  wg::Tensor targets;  // (B, T, 8)
};

/// `token(row)` is asked for each position of each row.
template <class Token>
Batch make_batch(const Task& task, std::int64_t rows, Token token) {
  std::vector<std::int64_t> ids;
  std::vector<float> targets;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t position = 0; position < length; ++position) {
      ids.push_back(token(row));
      for (std::int64_t j = 0; j < outputs; ++j)
        targets.push_back(static_cast<float>(task.wave(position, j)) +
                          task.token_part[static_cast<std::size_t>(ids.back() * outputs + j)]);
    }
  }
  return {wg::tensor<std::int64_t>(ids, {rows, length}), wg::tensor<float>(targets, {rows, length, outputs})};
}

/// (B, T, 8) as a matrix of 8 columns.
wg::report::Matrix by_output(const wg::Tensor& values) {
  return wg::report::to_matrix(wg::reshape(values, {-1, outputs}));
}

/// Over every token at every position.
example::Figures evaluate(Model& model, const Task& task) {
  const Batch all = make_batch(task, tokens, [](std::int64_t row) { return row; });
  model.eval();
  const wg::Tensor predicted = model(all.ids);
  model.train();
  example::Figures figures{{"loss", wg::mse_loss(predicted, all.targets).item()},
                           {"r2", wg::report::r2(by_output(predicted), by_output(all.targets))}};
  if (const wg::Tensor& table = model.embed.pos_embed.weight)
    figures.emplace_back("waves_r2",
                         wg::report::r2_on_components(wg::report::principal_components(wg::report::to_matrix(table)),
                                                      task.wave, outputs));
  return figures;
}

example::Run train(const example::Options& options, PositionTable positions) {
  wg::manual_seed(options.seed);
  std::mt19937_64 random(options.seed);
  std::uniform_int_distribution<std::int64_t> any_token(0, tokens - 1);
  const Task task(random);

  Model model(positions);
  wg::optim::Adam optimizer(model.named_parameters(), {.lr = 0.01});

  example::Run run;
  const wg::Tensor& table = model.embed.pos_embed.weight;
  run.before = evaluate(model, task);
  if (table) run.start = wg::report::to_matrix(table);

  auto progress = example::progress(options, positions);
  for (std::int64_t step = 1; step <= options.steps; ++step) {
    const Batch data = make_batch(task, batch, [&](std::int64_t) { return any_token(random); });
    wg::Tensor loss;
    {
      wg::Tape tape;
      loss = wg::mse_loss(model(data.ids), data.targets);
      tape.backward(loss);
    }
    optimizer.step();
    optimizer.zero_grad();
    run.record(step, loss);
    progress.update(step, loss);
  }

  run.after = evaluate(model, task);
  if (table) run.table = wg::report::to_matrix(table);
  return run;
}

/// The mean cosine of rows that far apart: in theory (the mean over k of cos(2 pi k K / T)) and in the learned table.
wg::report::Lines similarity(const example::Run& learned) {
  wg::report::Curve theory{.name = "theory"}, after{.name = "after"}, before{.name = "before"};
  for (std::int64_t distance = 0; distance < length / 2; ++distance) {
    double mean = 0.0;
    for (std::int64_t k = 1; k <= waves; ++k)
      mean += std::cos(2 * std::numbers::pi * static_cast<double>(k * distance) / static_cast<double>(length)) / waves;
    for (wg::report::Curve* curve : {&theory, &after, &before}) curve->x.push_back(static_cast<double>(distance));
    theory.y.push_back(mean);
    after.y.push_back(wg::report::cosine_at(learned.table.value(), distance));
    before.y.push_back(wg::report::cosine_at(learned.start.value(), distance));
  }
  return {.title = "Mean cosine",
          .curves = {after, theory, before},
          .x_label = "distance of positions",
          .y_label = "cosine"};
}

void fourier(const example::Options& options) {
  const example::Comparison comparison = example::compare(options, train);
  example::print(comparison);
  example::save(options, comparison, "Fourier: predict sines and cosines of the position, plus a vector of the token",
                [&] { return similarity(comparison.learned); });
}

}  // namespace

int main(int argc, char** argv) {
  return example::run(
      argc, argv,
      {.name = "fourier",
       .about = "Learns sines and cosines of the position; the table's similarities are known in theory.",
       .steps = 800},
      fourier);
}
