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

  /// How many steps fill a round.
  void size(double round_ms) {
    const double one = quantile(run_(3), 0.5);
    steps_ = static_cast<int>(std::clamp(round_ms / std::max(one, 1e-4), 1.0, 2000.0));
  }
  /// The median of one round. Its first steps find the caches full of the other side's data and are not counted.
  double round() {
    run_(1 + steps_ / 10);
    const Times times = run_(steps_);
    all_.insert(all_.end(), times.begin(), times.end());
    return quantile(times, 0.5);
  }
  double median() const { return quantile(all_, 0.5); }

 private:
  std::function<Times(int)> run_;
  int steps_ = 1;
  Times all_;
};

bool is_forward(Work work) { return work < Work::forward_backward; }

/// Whether a variant of an opponent does this work in a way of its own.
bool applies(const std::string& variant, Work work) {
  if (variant == "sparse") return !is_forward(work) && work != Work::adamw;
  if (work == Work::lazy_adam) return false;
  if (variant == "foreach" || variant == "fused") return work == Work::sgd || work == Work::adamw;
  return true;
}

}  // namespace

std::vector<Row> compare(const Configuration& c, const std::string& kind, Work work, const Settings& settings,
                         const MemoryLimit& limit, OurLayer& ours, Child& child, const Opponent& opponent,
                         const std::string& version, const std::function<void(const std::string&)>& skipped) {
  std::vector<Row> rows;
  if (work == Work::eval_forward && !opponent.draws_as_pytorch) return rows;
  const LeastTraffic least = least_traffic(c, work, different_ids(c, kind));
  for (const std::string& variant : opponent.variants) {
    if (!applies(variant, work)) continue;
    const bool only = opponent.variants.size() == 1 || is_forward(work);
    std::string name = opponent.name.empty() ? version : opponent.name + " " + version;
    if (variant != "dense" && variant != "sparse" && !(only && variant == "eager")) name += ", " + variant;
    if (variant == "eager" && only) name += ", eager";
    if (const std::string answer = child.ask(fmt::format("prepare {} {}", name_of(work), variant)); answer != "ok") {
      skipped(fmt::format("{} {} {} {}: {}", c.name, name_of(work), name, variant, answer));
      continue;
    }
    ours.prepare(work);
    IdStream stream(c, kind, 1);
    Side we([&](int count) {
      Times times;
      for (int i = 0; i < count; ++i) {
        const Tensor ids = ours.ids(stream);
        times.push_back(1e3 * ours.step(ids));
      }
      return times;
    });
    Side they([&](int count) {
      std::istringstream answer(child.ask(fmt::format("run {}", count)));
      Times times;
      for (double ms = 0.0; answer >> ms;) times.push_back(ms);
      return times;
    });
    we.size(settings.round_ms);
    they.size(settings.round_ms);
    Times ratios;
    for (int round = 0; round < settings.rounds; ++round) {
      const double mine = we.round();
      ratios.push_back(they.round() / mine);
    }
    Row row{.config = std::string(c.name),
            .ids = kind,
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
    row.fraction = 1e3 * least.seconds(limit) / row.ours_ms;
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
