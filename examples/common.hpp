#pragma once
/// What the example programs share: their options, the comparison of a learned position table with its controls, and
/// the output that --out and --json ask for. The training scripts themselves stand in the programs.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "wengert/wengert.hpp"

namespace example {

namespace report = wengert::report;

struct Program {
  const char* name;
  const char* about;
  std::int64_t steps;          ///< default of --steps
  const char* text = nullptr;  ///< default of --text; none: the program has no such option
  std::uint64_t seed = 1;      ///< default of --seed
  bool weights = false;        ///< reads a model: has --weights, which is required, --heads and --ids
  double tolerance = 0.0;      ///< default of --tolerance; above 0: the program has that option and --backends
};

struct Options {
  std::string name;    ///< of the program
  std::uint64_t seed;  ///< of everything that is random
  std::int64_t steps;  ///< training steps
  std::string text;    ///< file or folder
  std::string out;     ///< folder for pictures and curves; empty: none are made
  std::string json;    ///< file for the figures; empty: none

  std::string weights{};           ///< file of a model
  std::int64_t heads = 12;         ///< its attention heads
  std::vector<std::string> ids{};  ///< token ids, one text for each sentence

  std::vector<std::string> backends{};  ///< to be compared; empty: --backend alone is used
  double tolerance = 0.0;               ///< that their losses may differ by
};

/// Reads the options, chooses backend and number of threads, and runs `body`. Returns the exit status; what went wrong
/// is said in one line on stderr.
int run(int argc, char** argv, const Program& program, void (*body)(const Options& options));

/// Named numbers, in the order in which they are shown: accuracy, loss, r2, c1, ...
using Figures = std::vector<std::pair<std::string, double>>;

/// c1, c2, c4, c8, c16 (mean cosine of rows that far apart), pc2 and pc8 (variance share of the first principal
/// components), mantel, adj, as far as the table has enough rows; see wengert/table_metrics.hpp.
Figures table_figures(const report::Matrix& table);

/// A figure with two panels: the table, its largest hundredth of values in the strongest colour, and the cosines of its
/// rows. The table has values.
report::Figure table_figure(const std::string& title, const report::Matrix& table);

/// What one training run leaves behind.
struct Run {
  Figures before, after;                       ///< of the model, without those of its table
  std::optional<report::Matrix> start, table;  ///< position table before and after; none for a model without one
  report::Curve curve;                         ///< training loss over steps, under the name of the kind of table
  report::Curve profile;                       ///< what a program's own panel shows of it
  std::string text;                            ///< that the model wrote

  /// Notes the loss of the first step and of every `interval`-th.
  void record(std::int64_t step, const wengert::Tensor& loss, std::int64_t interval = 10);
};

using wengert::layers::PositionTable;
using Train = Run (*)(const Options& options, PositionTable positions);

struct Comparison {
  Run learned;
  std::vector<Run> controls;
};
/// Trains the same model with a learned position table and with each of the controls: a frozen random table, none.
/// A table that looks learned proves nothing unless those two do worse. Side by side if more than one thread is
/// allowed: tapes belong to threads, and each run gets a generator of its own.
Comparison compare(const Options& options, Train train,
                   const std::vector<PositionTable>& controls = {PositionTable::frozen, PositionTable::none});

/// The losses of the same training with a learned table on each of options.backends, one after another from the same
/// seed; curves have the backends' names.
std::vector<report::Curve> train_on_backends(const Options& options, Train train);

/// A bar for one of them; only the learned one shows when they run side by side.
report::Progress progress(const Options& options, PositionTable positions);

/// The figures side by side on stdout.
void print(const Comparison& comparison);

/// The mean cosine of the table's rows over their distance, after and before.
report::Lines cosines_over_distance(const Run& learned);

/// Writes what --out and --json ask for: pictures of the table and its cosines before and after, loss curves, `panel`
/// (made only if a picture is), and the figures.
void save(const Options& options, const Comparison& comparison, const std::string& title,
          const std::function<report::Lines()>& panel);
/// Prints the largest difference of each curve from the first, and writes what --out and --json ask for: the curves and
/// their differences in one picture, and the figures. Throws wengert::Error if one is not within options.tolerance.
void save(const Options& options, const std::vector<report::Curve>& backends, const std::string& title);
/// Figures as a JSON object, if --json asks for it.
void save_json(const Options& options, const Figures& figures);

}  // namespace example
