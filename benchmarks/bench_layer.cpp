// The embedding stack in the four configurations of configurations.hpp, on every backend: milliseconds a step, GB/s of
// what has to move at least, and the fraction of the memory's speed, which is measured first. Ids are fresh every step.

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <functional>
#include <memory>

#include "ours.hpp"

namespace wengert::benchmarks {
namespace {

/// One layer lives at a time: the next configuration's tables replace the last one's.
struct Current {
  std::string key;
  std::unique_ptr<OurLayer> layer;
};
Current current;

OurLayer& layer_for(const std::string& backend, const Configuration& c) {
  const std::string key = backend + std::string(c.name);
  if (current.key != key) {
    current = {};
    host_memory().release_cached();
    current.layer = std::make_unique<OurLayer>(c);
    current.key = key;
  }
  return *current.layer;
}

void run(benchmark::State& state, const std::string& backend, const Configuration& c, const std::string& kind,
         Work work, const MemoryLimit& limit) {
  const BackendScope scope(backend);
  OurLayer& layer = layer_for(backend, c);
  layer.prepare(work);
  IdStream stream(c, kind, 1);
  for (int i = 0; i < 3; ++i) layer.step(layer.ids(stream));
  double seconds = 0.0;
  for ([[maybe_unused]] auto _ : state) {
    const Tensor ids = layer.ids(stream);
    const double one = layer.step(ids);
    state.SetIterationTime(one);
    seconds += one;
  }
  const LeastTraffic least = least_traffic(c, work, different_ids(c, kind));
  const double step = seconds / static_cast<double>(state.iterations());
  state.counters["GB/s"] = 1e-9 * least.bytes() / step;
  state.counters["fraction"] = least.seconds(limit) / step;
}

}  // namespace
}  // namespace wengert::benchmarks

int main(int argc, char** argv) {
  using namespace wengert::benchmarks;
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;

  const MemoryLimit limit = measure_memory_limit(wengert::num_threads());
  fmt::print(stderr, "memory: {}\n", limit.text());
  for (const Configuration& c : configurations)
    fmt::print(stderr, "random rows of {}: {:.1f} GB/s\n", c.name,
               measure_gather_limit(c.vocabulary, c.width, wengert::num_threads()));
  for (const std::string& backend : wengert::backend_names()) {
    if (!wengert::backend_available(backend)) continue;
    fmt::print(stderr, "{}", account_of(wengert::backend(backend)));
    for (const Configuration& c : configurations) {
      for (const char* kind : {"uniform", "zipf"}) {
        for (std::size_t i = 0; i < work_names.size(); ++i) {
          if (!has(c, static_cast<Work>(i))) continue;
          benchmark::RegisterBenchmark(
              fmt::format("{}/{}/{}/{}", backend, c.name, kind, work_names[i]).c_str(),
              [=, &c](benchmark::State& state) { run(state, backend, c, kind, static_cast<Work>(i), limit); })
              ->UseManualTime()
              ->Unit(benchmark::kMillisecond)
              ->MinTime(0.3);
        }
      }
    }
  }
  benchmark::RunSpecifiedBenchmarks();
  current = {};
  benchmark::Shutdown();
}
