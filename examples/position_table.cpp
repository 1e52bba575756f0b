/// The position table that the chapter prints, bit for bit: NumPy's seed(42); randn(128, 64) / sqrt(64).

#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <limits>
#include <stdexcept>

#include "common.hpp"

namespace wg = wengert;

namespace {

constexpr std::int64_t rows = 128, width = 64;

/// At most three decimals, as NumPy prints rounded values: 0.062, 0.19.
std::string rounded(double value) { return fmt::format("{}", std::round(value * 1000) / 1000 + 0.0); }

void position_table(const example::Options& options) {
  if (options.seed > std::numeric_limits<std::uint32_t>::max())
    throw wg::ValueError(fmt::format("--seed: {} is outside [0, 2^32), which is what NumPy takes", options.seed));
  const wg::Tensor table = wg::numpy_randn(static_cast<std::uint32_t>(options.seed), {rows, width}) / std::sqrt(64.0);
  const wg::report::Matrix values = wg::report::to_matrix(table);
  for (std::int64_t i = 0; i < 5; ++i) {
    fmt::print("row {}:", i);
    for (std::int64_t j = 0; j < 5; ++j) fmt::print(" {}", rounded(values(i, j)));
    fmt::print(" ...\n");
  }
  fmt::print("[0][0] = {}, [{}][{}] = {}\n", values(0, 0), rows - 1, width - 1, values(rows - 1, width - 1));

  example::Figures figures{{"first", values(0, 0)}, {"last", values(rows - 1, width - 1)}};
  for (const auto& figure : example::table_figures(values)) figures.push_back(figure);
  for (const auto& [name, value] : figures) fmt::print("{:<8}{:>8.3f}\n", name, value);
  example::save_json(options, figures);
  if (options.out.empty()) return;
  const std::string path = options.out + "/" + options.name + ".png";
  example::table_figure(fmt::format("NumPy's seed({}); randn(128, 64) / sqrt(64)", options.seed), values)
      .save_png(path);
  fmt::print("picture: {}\n", path);
}

}  // namespace

int main(int argc, char** argv) {
  return example::run(argc, argv,
                      {.name = "position_table",
                       .about = "Prints and draws the chapter's table of 128 positions, equal to NumPy's bit for bit.",
                       .steps = 0,
                       .seed = 42},
                      position_table);
}
