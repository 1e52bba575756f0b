#pragma once
/// Alternating measurements of Wengert and an opponent, and what comes out of them.

#include <cstdint>
#include <functional>
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
  double fraction = 0.0;                      ///< time for them at the memory's speed, of ours
};

/// The work `work` against every variant of the opponent in `child`. What it cannot do is told to `skipped`.
std::vector<Row> compare(const Configuration& c, const std::string& kind, Work work, const Settings& settings,
                         const MemoryLimit& limit, OurLayer& ours, Child& child, const Opponent& opponent,
                         const std::string& version, const std::function<void(const std::string&)>& skipped);

/// What the run was: for the head of the tables.
struct Surroundings {
  std::string command, processor, account;
  MemoryLimit limit;
  std::vector<std::pair<std::string, double>> gather;  ///< GB/s of random rows, by configuration
  std::string when;
};
std::string processor_name();

/// The rows of one work and opponent as a line; ratios over dense gradients come with those over sparse ones.
std::string line_of(const Row& row);
std::string json_of(const std::vector<Row>& rows, const Surroundings& surroundings);
/// Tables by configuration; `picture` is the name of a file to show above them, or empty.
std::string markdown_of(const std::vector<Row>& rows, const Surroundings& surroundings, const std::string& picture);
/// Bars of the ratios, as an SVG file.
std::string picture_of(const std::vector<Row>& rows);

}  // namespace wengert::benchmarks
