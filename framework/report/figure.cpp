#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <variant>

#include "axis.hpp"
#include "canvas.hpp"
#include "wengert/report.hpp"

namespace wengert::report {

namespace {

// Lengths in units of which the picture has `pixels` per unit.
constexpr double pixels = 1.25;
constexpr double plot_size = 256.0;
constexpr double left_room = 58.0;   // y label and tick texts
constexpr double right_room = 16.0;  // where there is no colour bar or legend
constexpr double bar_room = 98.0;
constexpr double top_room = 30.0;     // panel title
constexpr double bottom_room = 50.0;  // tick texts and x label
constexpr double title_room = 36.0;   // figure title
constexpr double tick_text = 10.5;
constexpr double label_text = 11.5;
constexpr double title_text = 12.5;
constexpr double figure_title_text = 15.0;

/// A plot's rectangle and the values at its edges.
struct Plot {
  Point corner;  // top left
  double x_low, x_high, y_low, y_high;

  double x(double value) const { return corner.x + (value - x_low) / (x_high - x_low) * plot_size; }
  double y(double value) const { return corner.y + plot_size - (value - y_low) / (y_high - y_low) * plot_size; }
};

void draw_axes(Canvas& canvas, const Plot& plot, const std::vector<Tick>& x_ticks, const std::vector<Tick>& y_ticks,
               const std::string& title, const std::string& x_label, const std::string& y_label) {
  const Point corner = plot.corner;
  const double bottom = corner.y + plot_size;
  canvas.frame(corner, plot_size, plot_size);
  for (const Tick& tick : x_ticks) {
    canvas.line({plot.x(tick.value), bottom}, {plot.x(tick.value), bottom + 4});
    canvas.text(tick.text, {plot.x(tick.value), bottom + 16}, {.size = tick_text, .align = Align::centre});
  }
  for (const Tick& tick : y_ticks) {
    canvas.line({corner.x - 4, plot.y(tick.value)}, {corner.x, plot.y(tick.value)});
    canvas.text(tick.text, {corner.x - 7, plot.y(tick.value) + 4}, {.size = tick_text, .align = Align::right});
  }
  canvas.text(title, {corner.x + plot_size / 2, corner.y - 9}, {.size = title_text, .align = Align::centre});
  canvas.text(x_label, {corner.x + plot_size / 2, bottom + 34}, {.size = label_text, .align = Align::centre});
  canvas.text(y_label, {corner.x - 40, corner.y + plot_size / 2},
              {.size = label_text, .align = Align::centre, .upwards = true});
}

void draw_heatmap(Canvas& canvas, const Heatmap& panel, double limit, Point corner) {
  const auto cols = static_cast<double>(panel.values.cols), rows = static_cast<double>(panel.values.rows);
  canvas.cells(panel.values, limit, corner, plot_size, plot_size);
  // Ticks stand at the middle of their cells; row 0 is on top.
  const Plot plot{corner, -0.5, cols - 0.5, rows - 0.5, -0.5};
  draw_axes(canvas, plot, ticks(0, cols - 1, 5, true), ticks(0, rows - 1, 5, true), panel.title, panel.x_label,
            panel.y_label);
}

void draw_colour_bar(Canvas& canvas, const Heatmap& panel, double limit, Point corner) {
  constexpr double width = 14.0;
  constexpr std::int64_t levels = 256;
  Matrix ramp{std::vector<double>(levels), levels, 1};
  for (std::int64_t i = 0; i < levels; ++i) ramp(i, 0) = 1 - 2 * static_cast<double>(i) / (levels - 1);
  const double left = corner.x + plot_size + 16;
  canvas.cells(ramp, 1.0, {left, corner.y}, width, plot_size);
  canvas.frame({left, corner.y}, width, plot_size);
  const Plot scale{corner, 0, 1, -limit, limit};
  for (const Tick& tick : ticks(-limit, limit, 4)) {
    canvas.line({left + width, scale.y(tick.value)}, {left + width + 4, scale.y(tick.value)});
    canvas.text(tick.text, {left + width + 7, scale.y(tick.value) + 4}, {.size = tick_text});
  }
  canvas.text(panel.colour_label, {left + width + 52, corner.y + plot_size / 2},
              {.size = label_text, .align = Align::centre, .upwards = true});
}

/// The smallest and largest finite value, a little apart from the edges of the plot.
std::pair<double, double> range(const std::vector<Curve>& curves, std::vector<double> Curve::*axis, double margin) {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const Curve& curve : curves) {
    for (const double value : curve.*axis) {
      if (!std::isfinite(value)) continue;
      low = std::min(low, value);
      high = std::max(high, value);
    }
  }
  if (low > high) return {0.0, 1.0};
  if (low == high) return {low - 0.5, high + 0.5};
  return {low - margin * (high - low), high + margin * (high - low)};
}

void draw_lines(Canvas& canvas, const Lines& panel, Point corner) {
  const auto [x_low, x_high] = range(panel.curves, &Curve::x, 0.0);
  const auto [y_low, y_high] = range(panel.curves, &Curve::y, 0.05);
  const Plot plot{corner, x_low, x_high, y_low, y_high};
  const std::vector<Tick> x_ticks = ticks(x_low, x_high, 4), y_ticks = ticks(y_low, y_high, 5);
  for (const Tick& tick : y_ticks)
    canvas.line({corner.x, plot.y(tick.value)}, {corner.x + plot_size, plot.y(tick.value)}, 0.7, {0.88, 0.88, 0.88});
  canvas.clip(corner, plot_size, plot_size);
  for (std::size_t i = 0; i < panel.curves.size(); ++i) {
    std::vector<Point> points;
    for (std::size_t j = 0; j < panel.curves[i].x.size(); ++j)
      points.push_back({plot.x(panel.curves[i].x[j]), plot.y(panel.curves[i].y[j])});
    canvas.polyline(points, panel.curves[i].width, curve_colour(i));
  }
  canvas.unclip();
  draw_axes(canvas, plot, x_ticks, y_ticks, panel.title, panel.x_label, panel.y_label);
  double line = corner.y + 8;
  for (std::size_t i = 0; i < panel.curves.size(); ++i) {
    if (panel.curves[i].name.empty()) continue;
    const double left = corner.x + plot_size + 10;
    canvas.line({left, line}, {left + 16, line}, panel.curves[i].width + 0.6, curve_colour(i));
    canvas.text(panel.curves[i].name, {left + 21, line + 4}, {.size = tick_text});
    line += 17;
  }
}

}  // namespace

struct Figure::Panel {
  std::variant<Heatmap, Lines> content;

  const Heatmap* heatmap() const { return std::get_if<Heatmap>(&content); }
  /// Space for what stands to the right of the plot. A heatmap needs no colour bar when its right neighbour shows the
  /// same one.
  double room(Canvas& canvas, const Panel* right) const {
    if (const Heatmap* map = heatmap()) {
      const bool shared = right && right->heatmap() && !map->scale.empty() && right->heatmap()->scale == map->scale;
      return shared ? right_room : bar_room;
    }
    double room = right_room;
    for (const Curve& curve : std::get<Lines>(content).curves)
      if (!curve.name.empty()) room = std::max(room, 48 + canvas.text_width(curve.name, tick_text, false));
    return room;
  }
};

Figure::Figure(std::string_view title, int columns) : title_(title), columns_(std::max(columns, 1)) {}
Figure::Figure(Figure&&) noexcept = default;
Figure& Figure::operator=(Figure&&) noexcept = default;
Figure::~Figure() = default;

Figure& Figure::add(Heatmap panel) {
  const Matrix& values = panel.values;
  if (values.rows < 1 || values.cols < 1 ||
      static_cast<std::int64_t>(values.values.size()) != values.rows * values.cols)
    throw ShapeError(fmt::format("Figure: heatmap \"{}\" has {} values for {} x {} cells", panel.title,
                                 values.values.size(), values.rows, values.cols));
  panels_.push_back({std::move(panel)});
  return *this;
}

Figure& Figure::add(Lines panel) {
  for (const Curve& curve : panel.curves)
    if (curve.x.size() != curve.y.size())
      throw ShapeError(
          fmt::format("Figure: curve \"{}\" has {} x and {} y", curve.name, curve.x.size(), curve.y.size()));
  panels_.push_back({std::move(panel)});
  return *this;
}

void Figure::save_png(const std::string& path) const {
  // The colour scale of each heatmap: its own, or that of all with the same name.
  std::map<std::string, double> shared;
  std::vector<double> limits;
  for (const Panel& panel : panels_) {
    double limit = 0.0;
    if (const Heatmap* map = panel.heatmap()) {
      limit = map->limit;
      if (!(limit > 0))
        for (const double value : map->values.values)
          if (std::isfinite(value)) limit = std::max(limit, std::abs(value));
      if (!map->scale.empty()) shared[map->scale] = std::max(shared[map->scale], limit);
    }
    limits.push_back(limit);
  }
  for (std::size_t i = 0; i < panels_.size(); ++i) {
    const Heatmap* map = panels_[i].heatmap();
    if (map && !map->scale.empty()) limits[i] = shared[map->scale];
    if (!(limits[i] > 0)) limits[i] = 1.0;
  }

  const auto columns = static_cast<std::size_t>(columns_);
  const auto right_of = [&](std::size_t i) {
    return i + 1 < panels_.size() && (i + 1) % columns != 0 ? &panels_[i + 1] : nullptr;
  };
  Canvas measure(1, 1, 1);
  std::vector<double> lefts(columns + 1, 0.0), rooms(columns, 0.0);
  for (std::size_t i = 0; i < panels_.size(); ++i)
    rooms[i % columns] = std::max(rooms[i % columns], panels_[i].room(measure, right_of(i)));
  for (std::size_t c = 0; c < columns; ++c)
    lefts[c + 1] = lefts[c] + (rooms[c] > 0 ? left_room + plot_size + rooms[c] : 0.0);
  const std::size_t rows = (panels_.size() + columns - 1) / columns;
  constexpr double row_height = top_room + plot_size + bottom_room;
  const double width = std::max(lefts[columns], measure.text_width(title_, figure_title_text, true) + 2 * right_room);

  Canvas canvas(width, title_room + static_cast<double>(rows) * row_height, pixels);
  canvas.text(title_, {width / 2, 24}, {.size = figure_title_text, .align = Align::centre, .bold = true});
  for (std::size_t i = 0; i < panels_.size(); ++i) {
    const std::size_t row = i / columns;
    const Point corner{lefts[i % columns] + left_room, title_room + static_cast<double>(row) * row_height + top_room};
    if (const Heatmap* map = panels_[i].heatmap()) {
      draw_heatmap(canvas, *map, limits[i], corner);
      if (panels_[i].room(measure, right_of(i)) == bar_room) draw_colour_bar(canvas, *map, limits[i], corner);
    } else {
      draw_lines(canvas, std::get<Lines>(panels_[i].content), corner);
    }
  }
  write_file("Figure", path, canvas.png());
}

}  // namespace wengert::report
