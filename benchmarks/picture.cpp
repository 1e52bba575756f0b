// The ratios as bars, in SVG: text, so that a change of the numbers shows as one.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "measure.hpp"

namespace wengert::benchmarks {

namespace {

constexpr double label_width = 260, plot_width = 620, bar = 11, gap = 26, decades = 3;

double place(double ratio) { return plot_width * std::clamp(std::log10(ratio) / decades, 0.0, 1.0); }

/// The strongest opponent of each kind: of dense and of sparse gradients, for each work of a configuration.
struct Best {
  const Row *dense = nullptr, *sparse = nullptr;
};

}  // namespace

std::string picture_of(const std::vector<Row>& rows) {
  std::vector<std::pair<std::string, Best>> best;
  for (const Row& row : rows) {
    if (row.ids != "uniform" || row.is_transformer()) continue;
    const std::string key = row.config + " " + row.work;
    auto at = std::find_if(best.begin(), best.end(), [&key](const auto& entry) { return entry.first == key; });
    if (at == best.end()) at = best.insert(best.end(), {key, {}});
    const Row*& slot = row.sparse ? at->second.sparse : at->second.dense;
    if (!slot || row.opponent_ms < slot->opponent_ms) slot = &row;
  }
  if (best.empty()) return "";
  std::string body;
  double y = 58;
  const auto draw = [&](const Row& row, const char* colour) {
    body += fmt::format(
        "<rect x=\"{}\" y=\"{:.0f}\" width=\"{:.1f}\" height=\"{}\" fill=\"{}\"/>"
        "<text x=\"{:.0f}\" y=\"{:.0f}\" class=\"small\">{:.3g} over {}</text>\n",
        label_width, y, place(row.ratio), bar, colour, label_width + place(row.ratio) + 5, y + bar - 1.5, row.ratio,
        row.opponent);
    y += bar + 2;
  };
  for (const auto& [name, pair] : best) {
    body += fmt::format("<text x=\"{}\" y=\"{:.0f}\" text-anchor=\"end\">{}</text>\n", label_width - 8, y + bar, name);
    if (pair.dense) draw(*pair.dense, "#2b6cb0");
    if (pair.sparse) draw(*pair.sparse, "#dd8833");
    y += 6;
  }
  std::string grid;
  for (const double tick : {1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0})
    grid += fmt::format(
        "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"52\" y2=\"{1:.0f}\" stroke=\"#ddd\"/>"
        "<text x=\"{0:.1f}\" y=\"48\" text-anchor=\"middle\" class=\"small\">{2:g}</text>\n",
        label_width + place(tick), y, tick);
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
             "font-family=\"sans-serif\" "
             "font-size=\"12\">\n<style>.small{{font-size:10px;fill:#444}}</style>\n"
             "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
             "<text x=\"{2}\" y=\"18\" font-size=\"14\">Times faster than the fastest opponent (fresh uniform ids, "
             "logarithmic)</text>\n"
             "<rect x=\"{2}\" y=\"24\" width=\"10\" height=\"10\" fill=\"#2b6cb0\"/><text x=\"{3}\" y=\"33\" "
             "class=\"small\">its "
             "gradients dense, or none</text>\n"
             "<rect x=\"{4}\" y=\"24\" width=\"10\" height=\"10\" fill=\"#dd8833\"/><text x=\"{5}\" y=\"33\" "
             "class=\"small\">its "
             "gradients sparse</text>\n",
             label_width + plot_width + 200, y + gap, label_width, label_width + 14, label_width + 190,
             label_width + 204) +
         grid + body + "</svg>\n";
}

}  // namespace wengert::benchmarks
