#pragma once
/// Alternating measurements of Wengert and an opponent, and what comes out of them.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ours.hpp"
#include "process.hpp"

namespace wengert::benchmarks {

/// A program that does the same work; see libtorch_peer.cpp and torch_peer.py for what it is told and answers.
struct Opponent {
  std::string name;                  ///< "P0"; empty: what the program says of itself is enough
  std::vector<std::string> command;  ///< followed by configuration, ids, threads and `mode`
  std::vector<std::string> mode{};
  std::vector<std::pair<std::string, std::string>> environment{};
  std::vector<std::string> variants;  ///< kinds of gradients and optimisers
  bool draws_as_pytorch =
      true;  ///< false: it differs from plain PyTorch only in dropout, so forwards without it are left out
  bool knows_transformers = false;
};

struct Settings {
  std::string backend;
  int threads = 1;
  int rounds = 7;
  double round_ms = 60.0;  ///< of each side
};

/// One comparison.
struct Row {
  std::string config, ids, work, backend, arch;
  int threads = 1;
  std::string opponent;                       ///< "P1 libtorch 1.13.1", "PyTorch 2.9.0, fused"
  bool sparse = false;                        ///< the opponent has sparse gradients
  double opponent_ms = 0.0, ours_ms = 0.0;    ///< medians of all steps
  double ratio = 0.0;                         ///< of these medians
  double ratio_low = 0.0, ratio_high = 0.0;   ///< quartiles of the ratios of the rounds' medians
  std::optional<double> ratio_over_sparse{};  ///< beside a ratio over dense gradients: that over sparse ones
  double bytes = 0.0;                         ///< that a step has to move at least
  double fraction = 0.0;                      ///< time for them and for `flops` at the machine's speed, of ours
  double flops = 0.0;                         ///< of a transformer's step, else 0
  double opponent_mb = 0.0, ours_mb = 0.0;    ///< resident at most, of a transformer's processes, else 0

  bool is_transformer() const { return configuration(config).blocks > 0; }
};

/// What this machine can do.
struct Limits {
  MemoryLimit memory;
  double matmul = 0.0;  ///< GFLOP/s; 0 where nobody asked
};

/// Wengert and an opponent, each in a process of its own, with one configuration.
struct Sides {
  const Configuration& configuration;
  std::string kind;  ///< of the ids
  const Settings& settings;
  const Opponent& opponent;
  std::unique_ptr<Child> ours{}, theirs{};
  std::string version{};  ///< what the opponent says of itself

  /// Starts both, anew if they run.
  void start();
};

/// The work `work` against every variant of the opponent. What it cannot do is told to `skipped`. Transformers get new
/// processes for each row, so that the memory is that of the row.
std::vector<Row> compare(Sides& sides, Work work, const Limits& limits,
                         const std::function<void(const std::string&)>& skipped);

/// What the run was: for the head of the tables.
struct Surroundings {
  std::string command, processor, account;
  Limits limits;
  std::vector<std::pair<std::string, double>> gather;  ///< GB/s of random rows, by configuration
  std::string when;
  std::vector<std::string> earlier{};  ///< commands of earlier runs whose rows are there, too

  /// The machine's limits in words.
  std::string limits_text() const;
};
std::string processor_name();

/// The rows of one work and opponent as a line; ratios over dense gradients come with those over sparse ones.
std::string line_of(const Row& row);
std::string json_of(const std::vector<Row>& rows, const Surroundings& surroundings);
/// The rows of an earlier run's JSON; its commands go to `earlier`. Throws Error when it is something else.
std::vector<Row> rows_of(const std::string& json, std::vector<std::string>& earlier);
/// Tables by configuration; `picture` is the name of a file to show above them, or empty.
std::string markdown_of(const std::vector<Row>& rows, const Surroundings& surroundings, const std::string& picture);
/// Bars of the ratios of the embedding stack, as an SVG file; empty if there are none.
std::string picture_of(const std::vector<Row>& rows);

}  // namespace wengert::benchmarks
