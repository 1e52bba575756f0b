/// Sticky masked language model: one attention layer against the best that anybody can do.
///
/// A hidden symbol stays with probability .95 from one position to the next and is drawn anew otherwise; what is seen
/// is that symbol with probability .7, else any. Some positions are masked, and the model has to say what stood there.
/// The neighbours know, so attention has to look near, and only the position table can tell near from far. The exact
/// answer is that of the forward-backward algorithm: no model can have a lower loss.

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <random>

#include "common.hpp"

namespace wg = wengert;
using wg::layers::PositionTable;

namespace {

constexpr std::int64_t symbols = 16, length = 64, width = 32, batch = 32;
constexpr std::int64_t mask_id = symbols;
constexpr std::int64_t ignored = -100;
constexpr std::int64_t validation_rows = 4096;  // on a few hundred the floor itself would be off by .1
constexpr double stays = 0.95, seen = 0.7, masked = 0.15;

struct Model : wg::layers::Module {
  wg::layers::TransformerEmbedding embed;
  wg::layers::LayerNorm norm{{.normalized_shape = {width}}};
  wg::layers::MultiHeadAttention attention{{.embed_dim = width, .num_heads = 1}};
  wg::layers::Dropout drop{0.1};
  wg::layers::LayerNorm last_norm{{.normalized_shape = {width}}};
  wg::layers::Linear head{{.in_features = width, .out_features = symbols}};

  explicit Model(PositionTable positions)
      : embed({.vocab_size = symbols + 1,
               .max_seq_len = length,
               .embed_dim = width,
               .dropout = 0.1,
               .positions = positions}) {
    register_module("embed", embed);
    register_module("norm", norm);
    register_module("attention", attention);
    register_module("drop", drop);
    register_module("last_norm", last_norm);
    register_module("head", head);
  }
  wg::Tensor operator()(const wg::Tensor& ids) const {
    const wg::Tensor x = embed(ids);
    return head(last_norm(x + drop(attention(norm(x)))));
  }
};

struct Batch {
  std::vector<std::int64_t> ids, labels;  // (rows, length); a label only where the id is the mask
  wg::Tensor id_tensor() const { return tensor(ids); }
  wg::Tensor label_tensor() const { return tensor(labels); }
  Batch rows(std::int64_t first, std::int64_t last) const {
    const auto part = [&](const std::vector<std::int64_t>& values) {
      return std::vector<std::int64_t>(values.begin() + first * length, values.begin() + last * length);
    };
    return {part(ids), part(labels)};
  }

 private:
  static wg::Tensor tensor(const std::vector<std::int64_t>& values) {
    return wg::tensor(values, {std::ssize(values) / length, length});
  }
};

Batch make_batch(std::int64_t rows, std::mt19937_64& random) {
  std::uniform_int_distribution<std::int64_t> any(0, symbols - 1);
  std::uniform_real_distribution<double> unit;
  Batch data;
  for (std::int64_t row = 0; row < rows; ++row) {
    std::int64_t hidden = any(random);
    for (std::int64_t position = 0; position < length; ++position) {
      if (position > 0 && unit(random) >= stays) hidden = any(random);
      const std::int64_t token = unit(random) < seen ? hidden : any(random);
      const bool hide = unit(random) < masked;
      data.ids.push_back(hide ? mask_id : token);
      data.labels.push_back(hide ? token : ignored);
    }
  }
  return data;
}

using Chances = std::array<double, symbols>;

/// Scales to a sum of 1.
Chances normalized(Chances chances) {
  double total = 0.0;
  for (const double chance : chances) total += chance;
  for (double& chance : chances) chance /= total;
  return chances;
}
/// One position on, in either direction: the chain is symmetric.
Chances moved(const Chances& from) {
  Chances to{};
  for (std::size_t s = 0; s < from.size(); ++s) to[s] = stays * from[s] + (1 - stays) / symbols;  // they sum to 1
  return to;
}
/// Weighted by how likely each hidden symbol makes the token.
Chances observed(Chances chances, std::int64_t token) {
  if (token == mask_id) return chances;
  for (std::size_t s = 0; s < chances.size(); ++s)
    chances[s] *= (1 - seen) / symbols + (static_cast<std::int64_t>(s) == token ? seen : 0.0);
  return normalized(chances);
}

/// Loss and accuracy of the best prediction there is. Source of the algorithm: Rabiner, "A tutorial on hidden Markov
/// models", Proc. IEEE 77(2), 1989.
example::Figures bayes(const Batch& data) {
  double loss = 0.0, hits = 0.0, count = 0.0;
  for (std::size_t first = 0; first < data.ids.size(); first += length) {
    std::array<Chances, length> before, after;  // of the hidden symbol, from what is seen on one side
    Chances even;
    even.fill(1.0 / symbols);
    before.front() = after.back() = even;
    for (std::size_t i = 1; i < length; ++i) before[i] = moved(observed(before[i - 1], data.ids[first + i - 1]));
    for (std::size_t i = length - 1; i-- > 0;) after[i] = moved(observed(after[i + 1], data.ids[first + i + 1]));
    for (std::size_t i = 0; i < length; ++i) {
      const std::int64_t token = data.labels[first + i];
      if (token == ignored) continue;
      Chances hidden = before[i];
      for (std::size_t s = 0; s < hidden.size(); ++s) hidden[s] *= after[i][s];
      hidden = normalized(hidden);
      loss -= std::log(seen * hidden[static_cast<std::size_t>(token)] + (1 - seen) / symbols);
      hits += std::max_element(hidden.begin(), hidden.end()) - hidden.begin() == token;
      count += 1.0;
    }
  }
  return {{"accuracy", hits / count}, {"loss", loss / count}};
}

example::Figures evaluate(Model& model, const Batch& data) {
  constexpr std::int64_t chunk = 512;
  double loss = 0.0, hits = 0.0, count = 0.0;
  model.eval();
  for (std::int64_t first = 0; first < validation_rows; first += chunk) {
    const Batch part = data.rows(first, first + chunk);
    const wg::Tensor logits = model(part.id_tensor());
    loss += wg::cross_entropy(logits, part.label_tensor(), {.reduction = wg::Reduction::sum}).item();
    const auto answers = wg::argmax(logits, -1).to_vector<std::int64_t>();
    for (std::size_t i = 0; i < answers.size(); ++i) {
      hits += answers[i] == part.labels[i];
      count += part.labels[i] != ignored;
    }
  }
  model.train();
  return {{"accuracy", hits / count}, {"loss", loss / count}};
}

/// How much of a position's attention goes to positions that far away, on either side; the mean over some sequences.
wg::report::Curve attention_profile(Model& model, const Batch& data) {
  model.eval();
  const wg::Tensor x = model.norm(model.embed(data.rows(0, 64).id_tensor()));
  const wg::Tensor projected = wg::linear(x, model.attention.in_proj_weight, model.attention.in_proj_bias);
  const wg::Tensor queries = wg::slice(projected, 2, 0, width), keys = wg::slice(projected, 2, width, 2 * width);
  const wg::Tensor scores = wg::matmul(queries, wg::transpose(keys, 1, 2)) / std::sqrt(static_cast<double>(width));
  model.train();
  const wg::report::Matrix weights = wg::report::to_matrix(wg::mean(wg::softmax(scores), 0));
  wg::report::Curve profile;
  for (std::int64_t distance = 0; distance < length; ++distance) {
    profile.x.push_back(static_cast<double>(distance));
    double total = 0.0;
    for (std::int64_t i = 0; i < length; ++i)
      for (std::int64_t j = 0; j < length; ++j)
        if (std::abs(i - j) == distance) total += weights(i, j) / length;
    profile.y.push_back(total);
  }
  return profile;
}

Batch validation;

example::Run train(const example::Options& options, PositionTable positions) {
  wg::manual_seed(options.seed);
  std::mt19937_64 random(options.seed);

  Model model(positions);
  // The table starts as noise of some size; a higher rate and some decay let it forget that noise.
  const auto is_position = [](std::string_view name) { return name.starts_with("embed.pos_embed"); };
  const wg::NamedTensors parameters = model.named_parameters();
  wg::optim::AdamW optimizer(wg::select(parameters, std::not_fn(is_position)),
                             {.lr = 5e-3, .beta2 = 0.99, .weight_decay = 0.0});
  if (const wg::NamedTensors table = wg::select(parameters, is_position); !table.empty())
    optimizer.add_group({.parameters = table, .lr = 1.5e-2, .weight_decay = 0.1});
  optimizer.set_schedule([steps = options.steps](std::int64_t step) {
    return wg::optim::linear_warmup(step, 50) * wg::optim::cosine_decay(step, steps);
  });

  example::Run run;
  const wg::Tensor& table = model.embed.pos_embed.weight;
  run.before = evaluate(model, validation);
  if (table) run.start = wg::report::to_matrix(table);

  auto progress = example::progress(options, positions);
  for (std::int64_t step = 1; step <= options.steps; ++step) {
    const Batch data = make_batch(batch, random);
    wg::Tensor loss;
    {
      wg::Tape tape;
      loss = wg::cross_entropy(model(data.id_tensor()), data.label_tensor());
      tape.backward(loss);
    }
    optimizer.step();
    optimizer.zero_grad();
    run.record(step, loss);
    progress.update(step, loss);
  }

  run.after = evaluate(model, validation);
  run.profile = attention_profile(model, validation);
  run.after.emplace_back("near", run.profile.y[0] + run.profile.y[1] + run.profile.y[2] + run.profile.y[3] +
                                     run.profile.y[4]);  // attention within four positions
  if (table) run.table = wg::report::to_matrix(table);
  return run;
}

/// Where the model looks, with a learned table and with the controls.
wg::report::Lines attention_over_distance(const example::Comparison& comparison) {
  wg::report::Lines panel{.title = "Attention", .x_label = "distance", .y_label = "share"};
  const auto add = [&](const example::Run& run) {
    panel.curves.push_back({.name = run.curve.name, .x = run.profile.x, .y = run.profile.y});
  };
  add(comparison.learned);
  for (const example::Run& control : comparison.controls) add(control);
  return panel;
}

void sticky_mlm(const example::Options& options) {
  std::mt19937_64 random(options.seed + 1'000'000'007);  // sequences that no training run sees
  validation = make_batch(validation_rows, random);
  const example::Figures best = bayes(validation);
  example::Comparison comparison =
      example::compare(options, train, {PositionTable::sinusoidal, PositionTable::frozen, PositionTable::none});
  for (const auto& [name, value] : best) comparison.learned.after.emplace_back("bayes_" + name, value);
  example::print(comparison);
  example::save(options, comparison, "Sticky masked language model: fill in the gaps",
                [&] { return attention_over_distance(comparison); });
}

}  // namespace

int main(int argc, char** argv) {
  return example::run(argc, argv,
                      {.name = "sticky_mlm",
                       .about = "Fills gaps in sequences whose symbols linger; the best possible loss is known.",
                       .steps = 800},
                      sticky_mlm);
}
