// compare: the embedding stack, Wengert against libtorch and PyTorch, on the same CPUs, a round of one and a round of
// the other; and, when they are named, transformers against PyTorch.
//
//   P0  this machine's libtorch as it is
//   P1  the same with malloc told to keep its memory (the environment variable GLIBC_TUNABLES)
//   P2  P1 with dropout's mask drawn at about 1 ns an element
//   and a current PyTorch, of the Python that --python names

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <set>
#include <tuple>

#include "measure.hpp"

namespace wengert::benchmarks {
namespace {

struct Options {
  Settings settings;
  std::vector<std::string> configurations, ids = {"uniform", "zipf"}, works, opponents, variants;
  std::string python, json, markdown;
  bool add = false;
};

const char* tunables =
    "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=64000000000:glibc.malloc.top_pad=67108864:glibc.malloc."
    "hugetlb=1";

std::vector<Opponent> find_opponents(const Options& options) {
  const std::set<std::string> wanted(options.opponents.begin(), options.opponents.end());
  const auto asked = [&wanted](const char* name) { return wanted.empty() || wanted.contains(name); };
  std::vector<Opponent> found;
  const std::string libtorch = program_folder() + "/libtorch_peer";
  if (std::filesystem::exists(libtorch)) {
    Opponent opponent{.name = "P0", .command = {libtorch}, .mode = {"plain"}, .variants = {"dense", "sparse"}};
    if (asked("P0")) found.push_back(opponent);
    opponent.name = "P1";
    opponent.environment = {{"GLIBC_TUNABLES", tunables}};
    if (asked("P1")) found.push_back(opponent);
    opponent.name = "P2";
    opponent.mode = {"fast-mask"};
    opponent.draws_as_pytorch = false;
    if (asked("P2")) found.push_back(opponent);
  }
  if (!options.python.empty() && asked("PyTorch")) {
    found.push_back({.name = "",
                     .command = {options.python, program_folder() + "/torch_peer.py"},
                     .variants = {"eager", "foreach", "fused", "compile", "chunked", "sparse"},
                     .knows_transformers = true});
  }
  if (options.variants.empty()) return found;
  for (Opponent& opponent : found)
    std::erase_if(opponent.variants, [&options](const std::string& variant) {
      return std::find(options.variants.begin(), options.variants.end(), variant) == options.variants.end();
    });
  return found;
}

/// What there is so far: a run that is broken off leaves its rows.
void save(const Options& options, const Surroundings& surroundings, const std::vector<Row>& rows) {
  if (!options.json.empty()) report::write_file("--json", options.json, json_of(rows, surroundings));
  if (options.markdown.empty()) return;
  std::string picture;
  if (const std::string bars = picture_of(rows); !bars.empty()) {
    const auto path = std::filesystem::path(options.markdown).replace_extension(".svg");
    report::write_file("--markdown", path.string(), bars);
    picture = path.filename().string();
  }
  report::write_file("--markdown", options.markdown, markdown_of(rows, surroundings, picture));
}

/// Puts a row in the place of the one that it repeats, or behind those of its configuration.
void put(std::vector<Row>& rows, const Row& row) {
  const auto section = [](const Row& r) { return std::tie(r.config, r.ids); };
  const auto key = [&](const Row& r) {
    return std::tuple_cat(section(r), std::tie(r.work, r.backend, r.threads, r.opponent, r.sparse));
  };
  auto place = rows.end();
  for (auto r = rows.begin(); r != rows.end(); ++r) {
    if (key(*r) == key(row)) {
      *r = row;
      return;
    }
    if (section(*r) == section(row)) place = r + 1;
  }
  rows.insert(place, row);
}

void compare_all(const Options& options, const Surroundings& surroundings, std::vector<Row> rows) {
  const auto skipped = [](const std::string& what) { fmt::print(stderr, "left out: {}\n", what); };
  for (const std::string& name : options.configurations) {
    const Configuration& c = configuration(name);
    for (const std::string& kind : c.vocabulary > 0 ? options.ids : std::vector<std::string>{"no"}) {
      for (const Opponent& opponent : find_opponents(options)) {
        if (c.blocks > 0 && !opponent.knows_transformers) continue;
        Sides sides{c, kind, options.settings, opponent};
        for (const std::string& what : options.works) {
          if (!has(c, work(what))) continue;
          for (const Row& row : compare(sides, work(what), surroundings.limits, skipped)) {
            fmt::print("{}\n", line_of(row));
            std::fflush(stdout);
            put(rows, row);
          }
        }
        save(options, surroundings, rows);
      }
    }
  }
}

void run(const Options& options, const std::string& command) {
  set_backend(options.settings.backend);
  set_num_threads(options.settings.threads);
  pin_to_cpus(options.settings.threads);

  Surroundings surroundings;
  surroundings.command = command;
  surroundings.processor = processor_name();
  surroundings.when = fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr)));
  surroundings.account = account_of(backend(options.settings.backend));
  surroundings.limits.memory = measure_memory_limit(options.settings.threads);
  for (const std::string& name : options.configurations) {
    const Configuration& c = configuration(name);
    if (c.blocks == 0)
      surroundings.gather.emplace_back(name, measure_gather_limit(c.vocabulary, c.width, options.settings.threads));
    else if (surroundings.limits.matmul == 0.0)
      surroundings.limits.matmul = measure_matmul_limit();
  }
  host_memory().release_cached();
  fmt::print("{}{}\n{}\n", surroundings.account, surroundings.processor, surroundings.limits_text());
  if (find_opponents(options).empty())
    throw Error("no opponent: libtorch was not there when this was built, and no --python was given");

  std::vector<Row> rows;
  if (options.add && std::filesystem::exists(options.json))
    rows = rows_of(data::read_text_file(options.json), surroundings.earlier);
  compare_all(options, surroundings, rows);
}

}  // namespace
}  // namespace wengert::benchmarks

int main(int argc, char** argv) {
  using namespace wengert::benchmarks;
  Options options;
  options.settings.backend = "xsimd";
  for (const Configuration& c : configurations) options.configurations.emplace_back(c.name);
  options.works.assign(work_names.begin(), work_names.end());
  std::vector<std::string> all_configurations = options.configurations;
  const std::vector<std::string> all_works = options.works;
  for (const Configuration& c : transformers) all_configurations.emplace_back(c.name);

  CLI::App app("The embedding stack: Wengert against libtorch and PyTorch.", "compare");
  app.add_option("--backend", options.settings.backend, "backend of Wengert (default: xsimd)")
      ->check(CLI::IsMember(wengert::backend_names()));
  app.add_option("--threads", options.settings.threads, "threads of both sides, each on a CPU of its own (default: 1)")
      ->check(CLI::Range(1, 1024));
  app.add_option("--config", options.configurations, "configurations (default: those of the embedding stack)")
      ->check(CLI::IsMember(all_configurations))
      ->delimiter(',');
  app.add_option("--ids", options.ids, "how ids are drawn (default: both)")
      ->check(CLI::IsMember({"uniform", "zipf"}))
      ->delimiter(',');
  app.add_option("--work", options.works, "pieces of work (default: all)")
      ->check(CLI::IsMember(all_works))
      ->delimiter(',');
  app.add_option("--opponent", options.opponents, "opponents (default: all that are there)")
      ->check(CLI::IsMember({"P0", "P1", "P2", "PyTorch"}))
      ->delimiter(',');
  app.add_option("--variant", options.variants, "gradients and optimisers of the opponents (default: all)")
      ->check(CLI::IsMember({"dense", "sparse", "eager", "foreach", "fused", "compile", "chunked"}))
      ->delimiter(',');
  app.add_option("--python", options.python,
                 "a Python that has torch; or the environment variable WENGERT_TORCH_PYTHON")
      ->envname("WENGERT_TORCH_PYTHON");
  app.add_option("--rounds", options.settings.rounds, "rounds of each side (default: 7)")->check(CLI::Range(1, 1000));
  app.add_option("--round-ms", options.settings.round_ms, "milliseconds of a round (default: 60)")
      ->check(CLI::PositiveNumber);
  app.add_option("--json", options.json, "file for the rows");
  app.add_flag("--add", options.add, "keep the rows that the file of --json has, but for those measured again");
  app.add_option("--markdown", options.markdown, "file for the tables; the picture goes beside it");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  }
  std::string command = "build/release/benchmarks/compare";
  for (int i = 1; i < argc; ++i)
    if (std::string_view(argv[i]) == "--python")
      ++i, command += " --python PYTHON";
    else
      command += fmt::format(" {}", argv[i]);
  try {
    run(options, command);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "compare: {}\n", error.what());
    return 1;
  }
}
