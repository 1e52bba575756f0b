#include "common.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <future>

namespace example {

namespace {

/// One line: what is wrong, and what is allowed.
std::string complaint(const CLI::App* app, const CLI::Error& error) {
  std::string text = fmt::format("{}: {}", app->get_name(), error.what());
  if (dynamic_cast<const CLI::ExtrasError*>(&error)) {
    text += "; the options are";
    for (const CLI::Option* option : app->get_options()) text += " --" + option->get_lnames().front();
  }
  return text + "\n";
}

/// Why there is no such backend; empty if there is one.
std::string backend_reason(const std::string& name) {
  std::string reason;
  return wengert::backend_available(name, &reason) ? std::string() : reason;
}

/// What would fail after the training had better fail before it.
void prepare_output(const Options& options) {
  for (auto name = options.backends.begin(); name != options.backends.end(); ++name)
    if (std::find(options.backends.begin(), name, *name) != name)
      throw wengert::ValueError(fmt::format("--backends: {} is there twice", *name));
  namespace fs = std::filesystem;
  std::error_code error;
  if (!options.out.empty()) {
    fs::create_directories(options.out, error);
    if (error)
      throw wengert::IoError(fmt::format("--out: cannot make folder \"{}\": {}", options.out, error.message()));
  }
  if (!options.json.empty()) {
    const fs::path folder = fs::absolute(options.json).parent_path();
    if (!fs::is_directory(folder, error))
      throw wengert::IoError(fmt::format("--json: no folder \"{}\" to write \"{}\" in", folder.string(), options.json));
  }
}

const char* name_of(PositionTable positions) {
  switch (positions) {
    case PositionTable::learned: return "learned";
    case PositionTable::frozen: return "frozen";
    case PositionTable::sinusoidal: return "sinusoidal";
    case PositionTable::none: return "none";
  }
  return "?";
}

void append(Figures& figures, const Figures& more) { figures.insert(figures.end(), more.begin(), more.end()); }

bool side_by_side() { return wengert::num_threads() > 1; }

}  // namespace

int run(int argc, char** argv, const Program& program, void (*body)(const Options& options)) {
  Options options{program.name, program.seed, program.steps, program.text ? program.text : "", "", ""};
  std::string backend;
  int threads = 0;
  CLI::App app(program.about, program.name);
  app.add_option("--backend", backend,
                 fmt::format("backend to compute with: {}, or a plug-in (default: WENGERT_BACKEND, or xsimd)",
                             fmt::join(wengert::backend_names(), ", ")))
      ->check(backend_reason);
  app.add_option("--seed", options.seed, fmt::format("seed of everything random (default: {})", program.seed))
      ->check([](const std::string& text) {  // CLI11 reads -1 as 2^64 - 1
        return text.starts_with('-') ? "a seed is at least 0, not " + text : std::string();
      });
  app.add_option("--steps", options.steps,
                 program.steps > 0 ? fmt::format("training steps (default: {})", program.steps)
                                   : "accepted and ignored: nothing is trained here")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
  app.add_option("--threads", threads, "threads that kernels may use (default: one a CPU)")->check(CLI::Range(1, 1024));
  app.add_option("--out", options.out, "folder for pictures (PNG) and loss curves (CSV); none are made without it");
  app.add_option("--json", options.json, "file for the figures");
  if (program.text)
    app.add_option("--text", options.text,
                   fmt::format("text to learn: a file, or a folder (default: {})", program.text));
  if (program.tolerance > 0) {
    options.tolerance = program.tolerance;
    app.add_option(
           "--backends", options.backends,
           "backends to compare, \"reference,xsimd\": trains on each from the same seed, instead of with controls")
        ->delimiter(',')
        ->check(backend_reason)
        ->expected(2, 64)
        ->excludes("--backend");
    app.add_option("--tolerance", options.tolerance,
                   fmt::format("that their losses may differ by at any step (default: {})", program.tolerance))
        ->check([](const std::string& text) {
          const double value = std::strtod(text.c_str(), nullptr);
          return value >= 0 && std::isfinite(value) ? std::string() : "a tolerance is at least 0, not " + text;
        })
        ->needs("--backends");
  }
  if (program.weights) {
    app.add_option("--weights", options.weights, "safetensors file of the model")->required();
    app.add_option("--heads", options.heads, "attention heads of the model, which the file does not tell (default: 12)")
        ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20));
    app.add_option("--ids", options.ids, "token ids of a sentence, \"101 2023 2003 102\"; once for each sentence")
        ->allow_extra_args(false);
  }
  app.footer(
      "Figures (of the evaluation, without dropout): cK mean cosine of position rows K apart; adj share of positions "
      "whose\n"
      "nearest neighbour is one step away; pcN variance share of the first N principal components; mantel correlation "
      "of\n"
      "-|i-j| with the cosines; besides accuracy, loss, r2, seconds and a few of the program's own. The JSON has the "
      "same under\n"
      "\"before\", \"frozen\", \"none\" and so on, and leaves out what does not apply.");
  app.failure_message(complaint);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  }
  try {
    if (!backend.empty()) wengert::set_backend(backend);
    if (threads > 0) wengert::set_num_threads(threads);
    prepare_output(options);
    body(options);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", program.name, error.what());
    return 1;
  }
}

Figures table_figures(const report::Matrix& table) {
  Figures figures;
  for (const std::int64_t distance : {1, 2, 4, 8, 16})
    if (distance < table.rows) figures.emplace_back(fmt::format("c{}", distance), report::cosine_at(table, distance));
  const report::Components components = report::principal_components(table);
  figures.emplace_back("pc2", report::variance_share(components, 2));
  figures.emplace_back("pc8", report::variance_share(components, 8));
  figures.emplace_back("mantel", report::mantel(table));
  figures.emplace_back("adj", report::adjacency(table));
  return figures;
}

void Run::record(std::int64_t step, const wengert::Tensor& loss, std::int64_t interval) {
  if (step != 1 && step % interval != 0) return;
  curve.x.push_back(static_cast<double>(step));
  curve.y.push_back(loss.item());
}

Comparison compare(const Options& options, Train train, const std::vector<PositionTable>& controls) {
  const auto timed = [&](PositionTable positions) {
    wengert::Generator generator;
    const wengert::GeneratorScope scope(generator);
    const auto start = std::chrono::steady_clock::now();
    Run run = train(options, positions);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    if (run.start && positions == PositionTable::learned) append(run.before, table_figures(*run.start));
    if (run.table) append(run.after, table_figures(*run.table));
    run.after.emplace_back("seconds", seconds.count());
    run.curve.name = name_of(positions);
    return run;
  };
  const auto how = side_by_side() ? std::launch::async : std::launch::deferred;
  std::vector<std::future<Run>> others;
  others.reserve(controls.size());
  for (const PositionTable positions : controls) others.push_back(std::async(how, timed, positions));
  Comparison comparison{timed(PositionTable::learned), {}};
  for (std::future<Run>& other : others) comparison.controls.push_back(other.get());
  return comparison;
}

std::vector<report::Curve> train_on_backends(const Options& options, Train train) {
  std::vector<report::Curve> curves;
  for (const std::string& name : options.backends) {
    fmt::print(stderr, "{}:\n", name);
    const wengert::BackendScope use(name);
    curves.push_back(train(options, PositionTable::learned).curve);
    curves.back().name = name;
  }
  return curves;
}

report::Progress progress(const Options& options, PositionTable positions) {
  return report::Progress(fmt::format("{}, {}", options.name, name_of(positions)), options.steps,
                          {.visible = positions == PositionTable::learned || !side_by_side()});
}

}  // namespace example
