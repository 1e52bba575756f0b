#include "measure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

namespace wengert::benchmarks {

namespace {

using Times = std::vector<double>;  // milliseconds

double quantile(Times times, double q) {
  std::sort(times.begin(), times.end());
  const double place = q * static_cast<double>(times.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const double above = times[std::min(below + 1, times.size() - 1)];
  return times[below] + (place - static_cast<double>(below)) * (above - times[below]);
}

/// One side: runs steps and knows their times.
class Side {
 public:
  explicit Side(std::function<Times(int)> run) : run_(std::move(run)) {}

  /// How many steps fill a round. The first one pays for memory that comes fresh from the system and is not counted.
  void size(double round_ms) {
    run_(1);
    double one = quantile(run_(1), 0.5);
    if (one < round_ms) one = quantile(run_(3), 0.5);
    steps_ = static_cast<int>(std::clamp(round_ms / std::max(one, 1e-4), 1.0, 2000.0));
    warm_up_ = one < 10 * round_ms ? 1 + steps_ / 10 : 0;
  }
  /// The median of one round. Its first steps find the caches full of the other side's data and are not counted, unless
  /// a step takes so long that this makes no difference.
  double round() {
    if (warm_up_ > 0) run_(warm_up_);
    const Times times = run_(steps_);
    all_.insert(all_.end(), times.begin(), times.end());
    return quantile(times, 0.5);
  }
  double median() const { return quantile(all_, 0.5); }

 private:
  std::function<Times(int)> run_;
  int steps_ = 1, warm_up_ = 1;
  Times all_;
};

/// A side that a process runs: it answers "run N" with N times.
Side side_of(Child& child) {
  return Side([&child](int count) {
    std::istringstream answer(child.ask(fmt::format("run {}", count)));
    Times times;
    for (double ms = 0.0; answer >> ms;) times.push_back(ms);
    return times;
  });
}

/// Whether a variant of an opponent does this work in a way of its own.
bool applies(const std::string& variant, Work work) {
  if (work == Work::transformer_step_lazy) return variant == "fused" || variant == "sparse";
  if (variant == "chunked") return work == Work::transformer_step;
  if (work >= Work::transformer_step) return variant == "fused" || variant == "foreach";
  if (variant == "sparse") return !is_forward(work) && work != Work::adamw && work < Work::block_forward;
  if (work == Work::lazy_adam) return false;
  if (variant == "foreach" || variant == "fused") return work == Work::sgd || work == Work::adamw;
  return true;
}

/// "P1 libtorch 1.13.1", "PyTorch 2.9.0, fused"
std::string name_of(const Sides& sides, const std::string& variant) {
  std::string name = sides.opponent.name.empty() ? "" : sides.opponent.name + " ";
  name += sides.version;
  return variant == "dense" || variant == "sparse" ? name : name + ", " + variant;
}

}  // namespace

void Sides::start() {
  ours.reset();
  theirs.reset();
  const std::vector<std::string> arguments = {std::string(configuration.name), kind, std::to_string(settings.threads)};
  std::vector<std::string> mine = {program_folder() + "/wengert_peer"}, command = opponent.command;
  mine.insert(mine.end(), arguments.begin(), arguments.end());
  mine.push_back(settings.backend);
  command.insert(command.end(), arguments.begin(), arguments.end());
  command.insert(command.end(), opponent.mode.begin(), opponent.mode.end());
  ours = std::make_unique<Child>(mine, std::vector<std::pair<std::string, std::string>>());
  ours->receive();
  theirs = std::make_unique<Child>(command, opponent.environment);
  version = theirs->receive();
}

std::vector<Row> compare(Sides& sides, Work work, const Limits& limits,
                         const std::function<void(const std::string&)>& skipped) {
  const Configuration& c = sides.configuration;
  const Settings& settings = sides.settings;
  std::vector<Row> rows;
  if (work == Work::eval_forward && !sides.opponent.draws_as_pytorch) return rows;
  const LeastTraffic least = least_traffic(c, work, different_ids(c, sides.kind));
  for (const std::string& variant : sides.opponent.variants) {
    if (!applies(variant, work)) continue;
    if (!sides.theirs || c.blocks > 0) sides.start();
    const std::string name = name_of(sides, variant);
    if (const std::string answer = sides.theirs->ask(fmt::format("prepare {} {}", name_of(work), variant));
        answer != "ok") {
      skipped(fmt::format("{} {} {} {}: {}", c.name, name_of(work), name, variant, answer));
      continue;
    }
    sides.ours->ask(fmt::format("prepare {}", name_of(work)));
    Side we = side_of(*sides.ours), they = side_of(*sides.theirs);
    we.size(settings.round_ms);
    they.size(settings.round_ms);
    Times ratios;
    for (int round = 0; round < settings.rounds; ++round) {
      const double mine = we.round();
      ratios.push_back(they.round() / mine);
    }
    Row row{.config = std::string(c.name),
            .ids = sides.kind,
            .work = std::string(name_of(work)),
            .backend = settings.backend,
            .arch = architecture_of(backend(settings.backend)),
            .threads = settings.threads,
            .opponent = name,
            .sparse = variant == "sparse",
            .opponent_ms = they.median(),
            .ours_ms = we.median()};
    row.ratio = row.opponent_ms / row.ours_ms;
    row.ratio_low = quantile(ratios, 0.25);
    row.ratio_high = quantile(ratios, 0.75);
    row.bytes = least.bytes();
    row.flops = flops(c, work);
    row.fraction = 1e3 * least.seconds(limits.memory) / row.ours_ms;
    if (c.blocks > 0) {
      row.fraction += 1e-6 * row.flops / limits.matmul / row.ours_ms;
      row.opponent_mb = std::stod(sides.theirs->ask("memory"));
      row.ours_mb = std::stod(sides.ours->ask("memory"));
    }
    rows.push_back(row);
  }
  for (Row& row : rows)
    for (const Row& other : rows)
      if (!row.sparse && other.sparse) row.ratio_over_sparse = other.ratio;
  return rows;
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown processor";
}

}  // namespace wengert::benchmarks
