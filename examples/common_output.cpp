#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "common.hpp"

namespace example {

namespace {

constexpr double missing = std::numeric_limits<double>::quiet_NaN();

double find(const Figures& figures, const std::string& name) {
  for (const auto& [other, value] : figures)
    if (other == name) return value;
  return missing;
}

void add(nlohmann::ordered_json& object, const Figures& figures) {
  for (const auto& [name, value] : figures) object[name] = value;
}

void write_json(const Options& options, const nlohmann::ordered_json& object) {
  report::write_file("--json", options.json, object.dump(2) + "\n");
}

report::Heatmap table_panel(const report::Matrix& table, const char* title) {
  return {.title = title,
          .values = report::transpose(table),
          .x_label = "position",
          .y_label = "dimension",
          .colour_label = "value",
          .scale = "table"};
}

report::Heatmap cosine_panel(const report::Matrix& table, const char* title) {
  return {.title = title,
          .values = report::cosine_matrix(table),
          .x_label = "position",
          .y_label = "position",
          .colour_label = "cosine",
          .scale = "cosine"};
}

/// The loss curves of all runs, the learned one first.
std::vector<report::Curve> curves(const Comparison& comparison) {
  std::vector<report::Curve> all{comparison.learned.curve};
  for (const Run& control : comparison.controls) all.push_back(control.curve);
  return all;
}

report::Lines loss_panel(const Comparison& comparison) {
  return {.title = "Training loss", .curves = curves(comparison), .x_label = "step", .y_label = "loss"};
}

void save_curves(const std::string& path, const std::vector<report::Curve>& all) {
  std::vector<std::string> header{"step"};
  for (const report::Curve& curve : all) header.push_back(curve.name);
  report::Csv csv(header);
  for (std::size_t i = 0; i < all.front().x.size(); ++i) {
    std::vector<double> row{all.front().x[i]};
    for (const report::Curve& curve : all) row.push_back(curve.y[i]);
    csv.row(row);
  }
  csv.save(path);
}

}  // namespace

report::Figure table_figure(const std::string& title, const report::Matrix& table) {
  std::vector<double> sizes;
  for (const double value : table.values) sizes.push_back(std::abs(value));
  const auto large = sizes.begin() + std::ssize(sizes) * 99 / 100;
  std::nth_element(sizes.begin(), large, sizes.end());
  report::Heatmap panel = table_panel(table, "Position table");
  panel.limit = *large;  // a trained table has a few values so large that all others would look white
  report::Figure figure(title);
  figure.add(std::move(panel)).add(cosine_panel(table, "Cosines of positions"));
  return figure;
}

void print(const Comparison& comparison) {
  const Run& learned = comparison.learned;
  std::vector<std::pair<std::string, const Figures*>> columns{{"learned", &learned.after}, {"before", &learned.before}};
  for (const Run& control : comparison.controls) columns.emplace_back(control.curve.name, &control.after);
  fmt::print("{:<12}", "");
  for (const auto& [title, figures] : columns) fmt::print("{:>12}", title);
  fmt::print("\n");
  for (const auto& figure : learned.after) {
    fmt::print("{:<12}", figure.first);
    for (const auto& [title, figures] : columns) {
      const double value = find(*figures, figure.first);
      fmt::print("{:>12}", std::isnan(value) ? "-" : fmt::format("{:.{}f}", value, figure.first == "seconds" ? 1 : 3));
    }
    fmt::print("\n");
  }
}

report::Lines cosines_over_distance(const Run& learned) {
  report::Curve after{.name = "after"}, before{.name = "before"};
  for (std::int64_t distance = 0; distance <= learned.table.value().rows / 2; ++distance) {
    for (report::Curve* curve : {&after, &before}) curve->x.push_back(static_cast<double>(distance));
    after.y.push_back(report::cosine_at(*learned.table, distance));
    before.y.push_back(report::cosine_at(learned.start.value(), distance));
  }
  return {.title = "Mean cosine", .curves = {after, before}, .x_label = "distance of positions", .y_label = "cosine"};
}

void save(const Options& options, const Comparison& comparison, const std::string& title,
          const std::function<report::Lines()>& panel) {
  if (!options.json.empty()) {
    nlohmann::ordered_json object;
    add(object, comparison.learned.after);
    add(object["before"], comparison.learned.before);
    for (const Run& control : comparison.controls) add(object[control.curve.name], control.after);
    write_json(options, object);
  }
  if (options.out.empty()) return;
  const std::string stem = options.out + "/" + options.name;
  const report::Matrix &start = comparison.learned.start.value(), &table = comparison.learned.table.value();
  report::Figure(title, 3)
      .add(table_panel(start, "Position table before"))
      .add(table_panel(table, "Position table after"))
      .add(loss_panel(comparison))
      .add(cosine_panel(start, "Cosines of positions before"))
      .add(cosine_panel(table, "Cosines of positions after"))
      .add(panel())
      .save_png(stem + ".png");
  report::Figure(title)
      .add(table_panel(start, "before"))
      .add(table_panel(table, "after"))
      .save_png(stem + "_table.png");
  report::Figure(title)
      .add(cosine_panel(start, "before"))
      .add(cosine_panel(table, "after"))
      .save_png(stem + "_cosines.png");
  save_curves(stem + ".csv", curves(comparison));
  fmt::print("pictures and curves: {0}.png {0}_table.png {0}_cosines.png {0}.csv\n", stem);
}

void save(const Options& options, const std::vector<report::Curve>& backends, const std::string& title) {
  constexpr double floor = 1e-8;  // the logarithm of no difference would be no number
  report::Lines losses{.title = "Training loss", .curves = backends, .x_label = "step", .y_label = "loss"};
  double width = 1.6 * static_cast<double>(backends.size());
  for (report::Curve& curve : losses.curves)
    curve.width = std::exchange(width, width - 1.6);  // so that all can be seen
  const report::Curve& first = backends.front();
  report::Lines gaps{.title = "Difference from " + first.name,
                     .curves = {{}},  // of the first, which keeps its colour
                     .x_label = "step",
                     .y_label = "log10 of the difference, -8 for none"};
  Figures figures;
  for (const report::Curve& curve : backends) {
    if (&curve == &first) continue;
    report::Curve gap{.name = curve.name, .x = curve.x};
    double largest = 0.0;
    for (std::size_t i = 0; i < curve.y.size(); ++i) {
      const double difference = std::abs(curve.y[i] - first.y[i]);
      largest = std::isnan(largest) || difference <= largest ? largest : difference;
      gap.y.push_back(std::log10(std::max(difference, floor)));
    }
    gaps.curves.push_back(gap);
    figures.emplace_back(curve.name, largest);
    fmt::print("{} differs from {} by at most {:.1e} at {} steps; tolerance {:g}\n", curve.name, first.name, largest,
               curve.y.size(), options.tolerance);
  }
  const double limit = std::log10(std::max(options.tolerance, floor));
  gaps.curves.push_back({.name = fmt::format("tolerance {:g}", options.tolerance),
                         .x = {first.x.front(), first.x.back()},
                         .y = {limit, limit}});
  save_json(options, figures);
  if (!options.out.empty()) {
    const std::string stem = options.out + "/" + options.name + "_backends";
    report::Figure(title).add(losses).add(gaps).save_png(stem + ".png");
    save_curves(stem + ".csv", backends);
    fmt::print("picture and curves: {0}.png {0}.csv\n", stem);
  }
  for (const auto& [name, largest] : figures)
    if (!(largest <= options.tolerance))
      throw wengert::Error(fmt::format("--tolerance: {} differs from {} by {:.1e}, more than {:g}", name, first.name,
                                       largest, options.tolerance));
}

void save_json(const Options& options, const Figures& figures) {
  if (options.json.empty()) return;
  nlohmann::ordered_json object;
  add(object, figures);
  write_json(options, object);
}

}  // namespace example
