// bench_device: the embedding stack on a backend that works while the program goes on (a GPU), beside copies within its
// memory and, where a Python has it, PyTorch on the same device. A round is many steps between two moments at which the
// device has nothing left to do, a round of one side and a round of the other; the time of a step is the median of its
// rounds. Ids lie on the device, as PyTorch's do. Works on every backend: on the CPU it checks itself.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "ours.hpp"
#include "process.hpp"
#include "wengert/report.hpp"

namespace wengert::benchmarks {
namespace {

struct Options {
  std::string backend = "cuda", python, device = "cuda", json;
  std::vector<std::string> configurations = {"gpt2", "bert", "bigvocab"}, compiled = {"gpt2"};
  std::vector<std::string> works = {"eval_forward", "train_forward", "forward_backward", "sgd", "adamw", "lazy_adam"};
  std::string ids = "zipf";
  int rounds = 5;
  double round_ms = 30.0;
  std::int64_t copy_mib = 1024;
};

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

/// Milliseconds of one of `count` steps that are queued one after the other.
using Round = std::function<double(int count)>;

int steps_in(const Round& round, double round_ms) {
  round(3);
  return static_cast<int>(std::clamp(round_ms / std::max(round(3), 1e-4), 1.0, 2000.0));
}

/// Waits until the device has done what was queued before: a download comes after it.
void finish(const Tensor& any) {
  char byte = 0;
  any.backend().memory().download(&byte, any.storage().read(), 1);
}

double milliseconds(int count, const Tensor& any, const std::function<void(int)>& step) {
  finish(any);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < count; ++i) step(i);
  finish(any);
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count() / count;
}

/// GB/s of copies of `mib` MiB within the backend's memory; bytes read and bytes written both count.
double copy_speed(std::int64_t mib, double round_ms, int rounds) {
  const std::int64_t floats = mib << 18;
  const Tensor from = full({floats}, 1.0), to = full({floats}, 2.0);
  Memory& memory = from.backend().memory();
  const auto bytes = static_cast<std::size_t>(floats) * sizeof(float);
  const Round round = [&](int count) {
    return milliseconds(count, to, [&](int) { memory.copy(to.storage().write(), from.storage().read(), bytes); });
  };
  const int steps = steps_in(round, round_ms);
  std::vector<double> times(static_cast<std::size_t>(rounds));
  for (double& time : times) time = round(steps);
  return 2e-6 * static_cast<double>(bytes) / median(times);
}

class Bench {
 public:
  Bench(const Options& options, double copy) : options_(options), copy_(copy) {
    out_ = {{"backend", options.backend}, {"copy_gb_per_s", copy}, {"rows", nlohmann::ordered_json::array()}};
  }

  void run() {
    fmt::print(
        "| shape | work | ms | GB/s | of a copy | PyTorch ms | compiled ms | times faster |\n"
        "|---|---|---|---|---|---|---|---|\n");
    for (const std::string& name : options_.configurations) {
      const Configuration& c = configuration(name);
      OurLayer ours(c);
      IdStream stream(c, options_.ids, 1);
      std::vector<Tensor> batches(32);
      for (Tensor& batch : batches) batch = ours.ids(stream);
      std::unique_ptr<Child> peer;
      if (!options_.python.empty())
        peer = std::make_unique<Child>(
            std::vector<std::string>{options_.python, program_folder() + "/torch_peer.py", name, options_.ids,
                                     std::to_string(num_threads()), options_.device},
            std::vector<std::pair<std::string, std::string>>{});
      const std::string version = peer ? peer->receive() : "";
      for (const std::string& what : options_.works) {
        out_["rows"].push_back(row(c, work(what), ours, batches, peer.get(), version));
        save();  // a run that is broken off leaves its rows
      }
    }
  }

 private:
  void save() const {
    if (!options_.json.empty()) report::write_file("--json", options_.json, out_.dump(1) + "\n");
  }

  nlohmann::ordered_json row(const Configuration& c, Work what, OurLayer& ours, const std::vector<Tensor>& batches,
                             Child* peer, const std::string& version) const {
    ours.prepare(what);
    const Round we = [&](int count) {
      return milliseconds(count, batches[0],
                          [&](int i) { ours.step(batches[static_cast<std::size_t>(i) % batches.size()]); });
    };
    const Round they = [&](int count) {
      std::istringstream answer(peer->ask(fmt::format("run {}", count)));
      double ms = 0.0, sum = 0.0;
      int answers = 0;
      for (; answer >> ms; ++answers) sum += ms;
      return sum / std::max(answers, 1);
    };
    const double least = least_traffic(c, what, different_ids(c, options_.ids)).bytes();
    const int our_steps = steps_in(we, options_.round_ms);
    std::vector<double> mine;
    nlohmann::ordered_json out = {{"shape", c.name}, {"ids", options_.ids}, {"work", name_of(what)}};
    std::map<std::string, double> theirs;
    for (const char* variant : {"eager", "compile"}) {
      const bool compiled = std::string_view(variant) == "compile";
      if (!peer || (compiled && !compiles(c, what))) continue;
      const std::string used = what == Work::lazy_adam                    ? "sparse"  // PyTorch's own counterpart
                               : what == Work::sgd || what == Work::adamw ? "fused"   // its fastest optimisers
                                                                          : "eager";
      const std::string answer = peer->ask(fmt::format("prepare {} {}", name_of(what), compiled ? "compile" : used));
      if (answer != "ok") {
        out[variant] = answer;
        continue;
      }
      const int their_steps = steps_in(they, options_.round_ms);
      std::vector<double> times;
      for (int i = 0; i < options_.rounds; ++i) {
        mine.push_back(we(our_steps));
        times.push_back(they(their_steps));
      }
      theirs[variant] = median(times);
      out[variant] = {{"version", version}, {"ms", theirs[variant]}};
    }
    while (mine.size() < static_cast<std::size_t>(options_.rounds)) mine.push_back(we(our_steps));
    const double ms = median(mine), speed = 1e-6 * least / ms;
    out["ms"] = ms;
    out["bytes"] = least;
    out["gb_per_s"] = speed;
    out["of_copy"] = speed / copy_;
    const auto of = [&](const char* variant) {
      return theirs.contains(variant) ? fmt::format("{:.4f}", theirs.at(variant)) : std::string();
    };
    double best = 0.0;
    for (const auto& [variant, value] : theirs) best = best == 0.0 ? value : std::min(best, value);
    fmt::print("| {} | {} | {:.4f} | {:.0f} | {:.0f} % | {} | {} | {} |\n", c.name, name_of(what), ms, speed,
               100 * speed / copy_, of("eager"), of("compile"), best > 0.0 ? fmt::format("{:.2f}", best / ms) : "");
    std::fflush(stdout);
    return out;
  }

  bool compiles(const Configuration& c, Work what) const {
    const auto& names = options_.compiled;
    return what != Work::lazy_adam && std::find(names.begin(), names.end(), c.name) != names.end();
  }

  const Options& options_;
  double copy_;
  nlohmann::ordered_json out_;
};

void run(const Options& options) {
  set_backend(options.backend);
  fmt::print("{}", account_of(backend(options.backend)));
  const double copy = copy_speed(options.copy_mib, options.round_ms, options.rounds);
  current_backend().memory().release_cached();
  fmt::print("copies of {} MiB within the memory: {:.0f} GB/s\n\n", options.copy_mib, copy);
  Bench(options, copy).run();
}

}  // namespace
}  // namespace wengert::benchmarks

int main(int argc, char** argv) {
  using namespace wengert::benchmarks;
  Options options;
  CLI::App app("The embedding stack on a device, beside its memory's speed and PyTorch.", "bench_device");
  app.add_option("--backend", options.backend, "backend of Wengert (default: cuda)");
  app.add_option("--python", options.python, "a Python that has torch; without it there is no PyTorch to compare with");
  app.add_option("--device", options.device, "PyTorch's device (default: cuda)");
  app.add_option("--config", options.configurations, "shapes (default: gpt2, bert, bigvocab)")->delimiter(',');
  app.add_option("--compile", options.compiled, "shapes for which torch.compile is measured (default: gpt2)")
      ->delimiter(',');
  app.add_option("--work", options.works, "pieces of work")->delimiter(',');
  app.add_option("--ids", options.ids, "uniform or zipf (default)")->check(CLI::IsMember({"uniform", "zipf"}));
  app.add_option("--rounds", options.rounds, "rounds of each side (default: 5)")->check(CLI::Range(1, 1000));
  app.add_option("--round-ms", options.round_ms, "milliseconds of a round (default: 30)")->check(CLI::PositiveNumber);
  app.add_option("--copy-mib", options.copy_mib, "size of a copy (default: 1024)")->check(CLI::Range(1, 1 << 16));
  app.add_option("--json", options.json, "file for the results");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  }
  try {
    run(options);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_device: {}\n", error.what());
    return 1;
  }
}
