#pragma once
/// What a person sees of a training run: progress while it runs, pictures and tables of numbers when it is done.

#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "wengert/table_metrics.hpp"
#include "wengert/tensor.hpp"

namespace wengert::report {

// --- Progress ---

struct ProgressOptions {
  std::int64_t first = 0;       ///< steps that were done before, when a run is continued
  double plain_interval = 2.0;  ///< seconds between two lines where the output is no terminal; grows in long runs
  std::FILE* stream = nullptr;  ///< stderr unless given
  bool visible = true;          ///< false: shows nothing, for all but one of several runs side by side
};

/// Shows how far a training run has come. On a terminal one line is redrawn, at most ten times a second: a bar, step
/// and total, loss, steps per second, time left. Elsewhere a plain line appears now and then, and always one for the
/// last step. Not for two runs at once on one terminal.
class Progress {
 public:
  Progress(std::string_view label, std::int64_t total, const ProgressOptions& options = {});
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  /// Ends the line on a terminal, also when an exception passes.
  ~Progress();

  /// Step number `step` (counted from 1) is done. Costs a look at the clock unless something is due to be shown.
  void update(std::int64_t step, double loss);
  /// The same; reads the one value of `loss`, and so waits for its backend, only when it is due to be shown.
  void update(std::int64_t step, const Tensor& loss);

 private:
  struct State;
  bool due(std::int64_t step);
  std::unique_ptr<State> state_;
};

// --- Pictures ---

/// A matrix as coloured cells, row 0 on top: blue below zero, white at zero, red above; the scale is symmetric.
struct Heatmap {
  std::string title{};
  Matrix values{};
  std::string x_label{};
  std::string y_label{};
  std::string colour_label{};
  /// Heatmaps of one figure with the same non-empty `scale` share one colour scale, so that they can be compared.
  std::string scale{};
  /// The value of the strongest colour; 0: the largest magnitude of all heatmaps on this scale. NaN cells are grey.
  double limit = 0.0;
};

struct Curve {
  std::string name{};  ///< for the legend; empty: not in it
  std::vector<double> x{}, y{};
  double width = 1.6;  ///< of the line; later curves lie on top
};

/// Lines over common axes. Points that are not finite interrupt their line.
struct Lines {
  std::string title{};
  std::vector<Curve> curves{};
  std::string x_label{};
  std::string y_label{};
};

/// Panels side by side in rows, with axes, ticks, labels and colour bars.
class Figure {
 public:
  explicit Figure(std::string_view title, int columns = 2);
  Figure(Figure&&) noexcept;
  Figure& operator=(Figure&&) noexcept;
  ~Figure();

  /// Throws ShapeError for a heatmap without cells and for a curve whose x and y differ in length.
  Figure& add(Heatmap panel);
  Figure& add(Lines panel);
  /// Writes a PNG beside `path` and renames it: there is never half a picture. Throws IoError.
  void save_png(const std::string& path) const;

 private:
  struct Panel;
  std::string title_;
  int columns_;
  std::vector<Panel> panels_;
};

// --- Tables of numbers ---

/// Comma-separated values with a header, kept in memory until saved. Numbers in their shortest exact form whatever the
/// locale; NaN is an empty cell. Names with commas, quotes or line ends are quoted.
class Csv {
 public:
  explicit Csv(std::vector<std::string> header);
  /// Throws ShapeError unless there is one number for each column.
  Csv& row(std::initializer_list<double> values) { return row(std::span(values.begin(), values.size())); }
  Csv& row(std::span<const double> values);
  const std::string& text() const { return text_; }
  /// Writes beside `path` and renames. Throws IoError.
  void save(const std::string& path) const;

 private:
  std::size_t columns_;
  std::string text_;
};

/// Writes `content` beside `path`, then renames it over `path` (over what a link leads to; a device or pipe is written
/// to). Throws IoError: `what: cannot write "path": reason`.
void write_file(std::string_view what, const std::string& path, std::string_view content);

}  // namespace wengert::report
