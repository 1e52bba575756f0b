// Operations and kernels on every backend. `ops/...` runs the shared list of cases of the tests, forward and backward,
// where what counts is the cost of a call; `kernels/...` runs every kernel at sizes that no cache holds, with GB/s of
// what it has to move at least and the fraction of the memory's speed, which is measured first.

#include "bench_ops.hpp"

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <chrono>

#include "cases.hpp"
#include "ours.hpp"
#include "wengert/tape.hpp"

namespace wengert::benchmarks {
namespace {

void run_case(benchmark::State& state, const std::string& backend_name, const cases::Case& which, bool backward) {
  Backend& backend = wengert::backend(backend_name);
  const BackendScope scope(backend);
  std::vector<Tensor> inputs = cases::make_inputs(which, DType::float32, backend);
  Tensor upstream;
  for ([[maybe_unused]] auto _ : state) {
    if (!backward) {
      benchmark::DoNotOptimize(which.run(inputs));
      continue;
    }
    Tape tape;
    const Tensor out = which.run(inputs);
    if (!upstream.defined()) upstream = ones(out.shape(), out);
    tape.backward(out, {.seed = upstream});
    for (Tensor& input : inputs) input.zero_grad();
  }
}

/// Whether a backward pass reaches any input.
bool trains(const cases::Case& which) {
  if (!which.differentiable) return false;
  const std::vector<Tensor> inputs = cases::make_inputs(which, DType::float32);
  Tape tape;
  return which.run(inputs).requires_grad();
}

void run_kernel(benchmark::State& state, const std::string& backend_name, const KernelBenchmark& kernel,
                const MemoryLimit& limit) {
  Backend& backend = wengert::backend(backend_name);
  const BackendScope scope(backend);
  const std::function<void()> body = kernel.make(backend.kernels(DType::float32));
  body();
  const auto start = std::chrono::steady_clock::now();
  for ([[maybe_unused]] auto _ : state) body();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  const double calls_per_ns = 1e-9 * static_cast<double>(state.iterations()) / seconds.count();
  const double speed = kernel.traffic == Traffic::read     ? limit.read
                       : kernel.traffic == Traffic::update ? limit.update
                                                           : limit.best_copy();
  state.counters["GB/s"] = kernel.bytes * calls_per_ns;
  state.counters["fraction"] = kernel.bytes * calls_per_ns / speed;
  if (kernel.flops > 0) state.counters["GFLOP/s"] = kernel.flops * calls_per_ns;
}

}  // namespace
}  // namespace wengert::benchmarks

int main(int argc, char** argv) {
  using namespace wengert::benchmarks;
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;

  const MemoryLimit limit = measure_memory_limit(wengert::num_threads());
  fmt::print(stderr, "memory: {}\n", limit.text());
  const std::vector<KernelBenchmark> kernels = kernel_benchmarks();
  for (const std::string& name : wengert::backend_names()) {
    if (!wengert::backend_available(name)) continue;
    wengert::Backend& backend = wengert::backend(name);
    fmt::print(stderr, "{}", account_of(backend));
    for (const wengert::KernelOrigin& origin : backend.kernel_origins()) {
      bool there = false;
      for (const KernelBenchmark& kernel : kernels)
        there |= kernel.name.substr(0, kernel.name.find('/')) == origin.kernel;
      if (!there) {
        fmt::print(stderr, "bench_ops: no benchmark of kernel {}\n", origin.kernel);
        return 1;
      }
    }
    for (const KernelBenchmark& kernel : kernels)
      benchmark::RegisterBenchmark(fmt::format("kernels/{}/{}", kernel.name, name).c_str(),
                                   [=](benchmark::State& state) { run_kernel(state, name, kernel, limit); })
          ->UseRealTime()
          ->Unit(benchmark::kMicrosecond)
          ->MinTime(0.1);
  }
  for (const wengert::cases::Case& which : wengert::cases::all()) {
    const bool trained = trains(which);
    for (const std::string& name : wengert::backend_names()) {
      if (!wengert::backend_available(name)) continue;
      for (const bool backward : {false, true}) {
        if (backward && !trained) continue;
        benchmark::RegisterBenchmark(
            fmt::format("ops/{}/{}/{}", which.name, backward ? "backward" : "forward", name).c_str(),
            [name, &which, backward](benchmark::State& state) { run_case(state, name, which, backward); })
            ->UseRealTime()
            ->MinTime(0.02);
      }
    }
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
