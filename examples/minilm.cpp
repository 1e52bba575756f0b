/// MiniLM: the position table of a model that people use, and its sentence vectors.
///
/// Reads the weights of sentence-transformers/all-MiniLM-L6-v2, or of any BERT whose file has Hugging Face's names,
/// draws the table, and turns token ids into the vectors by which sentences are compared: the mean over the tokens of
/// what the last layer says, scaled to length 1. Source: Reimers and Gurevych, "Sentence-BERT", EMNLP 2019.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "common.hpp"

namespace wg = wengert;

namespace {

struct Sizes {
  std::int64_t tokens, positions, types, width, feedforward, depth;
};

struct Bert : wg::layers::Module {
  wg::layers::BertEmbedding embed;
  wg::layers::ModuleList<wg::layers::TransformerBlock> blocks;

  Bert(const Sizes& sizes, std::int64_t heads)
      : embed({.vocab_size = sizes.tokens,
               .max_seq_len = sizes.positions,
               .embed_dim = sizes.width,
               .type_vocab_size = sizes.types}) {
    for (std::int64_t i = 0; i < sizes.depth; ++i)
      blocks.emplace_back({.embed_dim = sizes.width,
                           .num_heads = heads,
                           .feedforward_dim = sizes.feedforward,
                           .activation = wg::layers::Activation::gelu,
                           .layer_norm_eps = 1e-12});
    register_module("embed", embed);
    register_module("blocks", blocks);
    eval();
  }
  /// ids (B, T), padding (B, T), 1 where there is no token -> (B, T, width).
  wg::Tensor operator()(const wg::Tensor& ids, const wg::Tensor& padding) const {
    wg::Tensor x = embed(ids);
    for (std::size_t i = 0; i < blocks.size(); ++i) x = blocks[i](x, {.key_padding_mask = padding});
    return x;
  }
};

/// The file's tensors under our names, without the pooler and the heads of its training.
wg::NamedTensors read_weights(const std::string& path) {
  return wg::select(wg::io::rename(wg::io::load_safetensors(path), wg::io::bert_names, "bert."),
                    [](std::string_view name) { return name.starts_with("embed.") || name.starts_with("blocks."); });
}

Sizes sizes_of(const wg::NamedTensors& weights, const std::string& path) {
  const auto matrix = [&](const char* name) -> wg::Shape {
    const wg::Tensor tensor = wg::find(weights, name);
    if (!tensor) throw wg::IoError(fmt::format("\"{}\" is no BERT: it has nothing that becomes {}", path, name));
    if (tensor.dim() != 2)
      throw wg::ShapeError(fmt::format("\"{}\": {} is no matrix: {}", path, name, tensor.shape().str()));
    return tensor.shape();
  };
  const wg::Shape words = matrix("embed.word_embeddings.weight");
  std::int64_t depth = 0;
  while (wg::find(weights, fmt::format("blocks.{}.linear1.weight", depth))) ++depth;
  return {.tokens = words.size(0),
          .positions = matrix("embed.position_embeddings.weight").size(0),
          .types = matrix("embed.token_type_embeddings.weight").size(0),
          .width = words.size(1),
          .feedforward = matrix("blocks.0.linear1.weight").size(0),
          .depth = depth};
}

std::vector<std::int64_t> parse_ids(std::string_view text) {
  std::vector<std::int64_t> ids;
  constexpr std::string_view blank = " ,\t\n";
  for (std::size_t at = text.find_first_not_of(blank); at < text.size(); at = text.find_first_not_of(blank, at)) {
    const std::size_t end = std::min(text.find_first_of(blank, at), text.size());
    std::int64_t id = 0;
    const auto [stop, error] = std::from_chars(text.data() + at, text.data() + end, id);
    if (error != std::errc() || stop != text.data() + end)
      throw wg::ValueError(fmt::format("--ids: \"{}\" is no token id", text.substr(at, end - at)));
    ids.push_back(id);
    at = end;
  }
  if (ids.empty()) throw wg::ValueError("--ids: a sentence without tokens");
  return ids;
}

/// One vector of length 1 for each sentence: (B, width).
wg::Tensor embed_sentences(const Bert& model, const std::vector<std::string>& sentences) {
  std::vector<std::vector<std::int64_t>> rows;
  rows.reserve(sentences.size());
  for (const std::string& sentence : sentences) rows.push_back(parse_ids(sentence));
  const auto shorter = [](const auto& a, const auto& b) { return a.size() < b.size(); };
  const std::size_t length = std::max_element(rows.begin(), rows.end(), shorter)->size();
  std::vector<std::int64_t> ids, padding;
  std::vector<float> shares;  // of each token in the mean of its sentence
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < length; ++i) {
      const bool token = i < row.size();
      ids.push_back(token ? row[i] : 0);
      padding.push_back(token ? 0 : 1);
      shares.push_back(token ? 1 / static_cast<float>(row.size()) : 0.0F);
    }
  }
  const auto count = std::ssize(rows), width = static_cast<std::int64_t>(length);
  const wg::Tensor states = model(wg::tensor(ids, {count, width}), wg::tensor(padding, {count, width}));
  const wg::Tensor means =
      wg::reshape(wg::matmul(wg::tensor(shares, {count, 1, width}), states), {count, states.size(2)});
  return means / wg::sqrt(wg::sum(wg::square(means), -1, true));
}

void minilm(const example::Options& options) {
  const wg::NamedTensors weights = read_weights(options.weights);
  const Sizes sizes = sizes_of(weights, options.weights);
  if (sizes.width % options.heads != 0)
    throw wg::ValueError(
        fmt::format("--heads: {} dimensions are not a multiple of {} heads", sizes.width, options.heads));
  Bert model(sizes, options.heads);
  model.load_state_dict(weights);
  fmt::print("{} tokens, {} positions, {} dimensions, {} layers, {} parameters\n", sizes.tokens, sizes.positions,
             sizes.width, sizes.depth, model.num_parameters());

  const wg::report::Matrix table = wg::report::to_matrix(model.embed.position_embeddings.weight);
  example::Figures figures = example::table_figures(table);
  for (const auto& [name, value] : figures) fmt::print("{:<8}{:>8.3f}\n", name, value);
  wg::report::Figure figure = example::table_figure("The learned position table of a trained BERT", table);
  const std::string stem = options.out + "/" + options.name;

  if (!options.ids.empty()) {
    const wg::Tensor vectors = embed_sentences(model, options.ids);
    const wg::report::Matrix values = wg::report::to_matrix(vectors), cosines = wg::report::cosine_matrix(values);
    for (std::int64_t i = 0; i < values.rows; ++i) {
      fmt::print("sentence {}: {:.4f} ...\ncosines:", i,
                 fmt::join(values.row(i).first(std::min<std::size_t>(6, values.row(i).size())), " "));
      for (std::int64_t j = 0; j < values.rows; ++j) {
        fmt::print(" {:.4f}", cosines(i, j));
        if (i < j) figures.emplace_back(fmt::format("cosine_{}_{}", i, j), cosines(i, j));
      }
      fmt::print("\n");
    }
    figure.add(wg::report::Heatmap{.title = "Cosines of sentences",
                                   .values = cosines,
                                   .x_label = "sentence",
                                   .y_label = "sentence",
                                   .colour_label = "cosine"});
    if (!options.out.empty()) wg::io::save_npy(vectors, stem + ".npy");
  }
  example::save_json(options, figures);
  if (options.out.empty()) return;
  figure.save_png(stem + ".png");
  fmt::print("written: {0}.png{1}\n", stem, options.ids.empty() ? "" : fmt::format(" {}.npy (the vectors)", stem));
}

}  // namespace

int main(int argc, char** argv) {
  return example::run(argc, argv,
                      {.name = "minilm",
                       .about = "Draws the position table of a trained BERT and compares sentences by their vectors.",
                       .steps = 0,
                       .weights = true},
                      minilm);
}
