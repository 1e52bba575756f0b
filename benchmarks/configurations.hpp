#pragma once
/// What is measured: shapes of the embedding stack and of transformers, the ids, and the pieces of work. Plain C++,
/// because the program that measures libtorch includes it too; torch_peer.py and torch_transformer.py say the same in
/// Python.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace wengert::benchmarks {

/// The embedding stack: out (batch, length, width) = dropout(tokens (vocabulary, width)[ids] + positions (limit,
/// width)[0 .. length], 0.1). With blocks, a transformer in the shape of GPT-2 on top of it, or, without a vocabulary,
/// one of its blocks alone: causal, the norms first, a network of 4 width in between with gelu in its tanh form.
struct Configuration {
  std::string_view name;
  std::int64_t vocabulary, limit, width, batch, length;
  std::int64_t blocks = 0, heads = 0;

  constexpr std::int64_t tokens() const { return batch * length; }
  constexpr std::int64_t elements() const { return tokens() * width; }
};

inline constexpr double dropout_p = 0.1;
inline constexpr std::array configurations = {
    Configuration{"small", 1000, 128, 64, 32, 128},
    Configuration{"gpt2", 50257, 1024, 768, 4, 1024},
    Configuration{"bert", 30522, 512, 768, 16, 128},
    Configuration{"bigvocab", 1000000, 512, 128, 32, 128},
};
inline constexpr std::array transformers = {
    Configuration{"block256", 0, 0, 768, 4, 256, 1, 12},
    Configuration{"block1024", 0, 0, 768, 4, 1024, 1, 12},
    Configuration{"gpt2_64", 50257, 1024, 768, 4, 64, 12, 12},
    Configuration{"gpt2_256", 50257, 1024, 768, 4, 256, 12, 12},
};

/// One step of each kind takes fresh ids. The upstream gradient is made once; gradients are dropped after each step.
enum class Work : std::uint8_t {
  eval_forward,          ///< nothing dropped, nothing recorded
  train_forward,         ///< recorded, with dropout
  train_forward_linear,  ///< the same and a linear layer, width -> width, after it
  forward_backward,      ///< gradients of both tables
  sgd,                   ///< and a step of plain SGD
  adamw,                 ///< and a step of AdamW over every row of both tables
  lazy_adam,             ///< and a step of Adam over the rows that the batch touched (SparseAdam)
  // One block, recorded, with dropout 0.1 of the attention weights, after the activation and of both branches.
  block_forward,
  block_forward_backward,  ///< gradients of its parameters and of its input
  // Ids, forward, loss of the next token, backward and a step of AdamW over all parameters, without dropout.
  transformer_step,         ///< the head is the token table
  transformer_step_untied,  ///< the head is a table of its own: the token table's gradient has the batch's rows alone
  transformer_step_lazy,    ///< the same, and only those rows of the token table step
};
inline constexpr std::array work_names = {"eval_forward",
                                          "train_forward",
                                          "train_forward_linear",
                                          "forward_backward",
                                          "sgd",
                                          "adamw",
                                          "lazy_adam",
                                          "block_forward",
                                          "block_forward_backward",
                                          "transformer_step",
                                          "transformer_step_untied",
                                          "transformer_step_lazy"};
inline std::string_view name_of(Work work) { return work_names[static_cast<std::size_t>(work)]; }

/// The work that is done with a configuration: what its name says.
constexpr bool has(const Configuration& c, Work work) {
  if (c.blocks == 0) return work <= Work::lazy_adam;
  const bool block = work == Work::block_forward || work == Work::block_forward_backward;
  return c.vocabulary == 0 ? block : work >= Work::transformer_step;
}
constexpr bool is_forward(Work work) { return work < Work::forward_backward || work == Work::block_forward; }

/// The one called `name` of a list of things with names. Throws std::invalid_argument.
inline const Configuration& configuration(std::string_view name) {
  for (const Configuration& c : configurations)
    if (c.name == name) return c;
  for (const Configuration& c : transformers)
    if (c.name == name) return c;
  throw std::invalid_argument("no configuration " + std::string(name));
}
inline Work work(std::string_view name) {
  for (std::size_t i = 0; i < work_names.size(); ++i)
    if (work_names[i] == name) return static_cast<Work>(i);
  throw std::invalid_argument("no work " + std::string(name));
}

/// Ids that never come again: number n of the stream is a function of the seed and n alone. Uniform over the
/// vocabulary, or by Zipf's law: id k with probability proportional to 1 / (k + 1). "no" are the ids of a block.
class IdStream {
 public:
  IdStream(const Configuration& c, std::string_view kind, std::uint64_t seed) : rows_(c.vocabulary), next_(seed << 40) {
    if (kind == "uniform" || kind == "no") return;
    if (kind != "zipf") throw std::invalid_argument("ids are uniform or zipf, not " + std::string(kind));
    below_.resize(static_cast<std::size_t>(rows_));
    double sum = 0.0;
    for (std::size_t k = 0; k < below_.size(); ++k) below_[k] = sum += 1.0 / static_cast<double>(k + 1);
  }

  std::int64_t next() {
    const double unit = static_cast<double>(mix(next_++) >> 11) * 0x1p-53;
    if (below_.empty()) return static_cast<std::int64_t>(unit * static_cast<double>(rows_));
    const auto place = std::upper_bound(below_.begin(), below_.end(), unit * below_.back()) - below_.begin();
    return std::min<std::int64_t>(place, rows_ - 1);
  }
  std::vector<std::int64_t> batch(std::int64_t count) {
    std::vector<std::int64_t> ids(static_cast<std::size_t>(count));
    for (std::int64_t& id : ids) id = next();
    return ids;
  }

 private:
  /// SplitMix64.
  static std::uint64_t mix(std::uint64_t x) {
    x = (x + 1) * 0x9E3779B97F4A7C15U;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
    return x ^ (x >> 31);
  }

  std::int64_t rows_;
  std::uint64_t next_;
  std::vector<double> below_;  // sums of the weights of ids 0 .. k
};

}  // namespace wengert::benchmarks
