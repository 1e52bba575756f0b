#pragma once
/// Every kernel of the interface, at sizes where the memory's speed decides.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "wengert/kernels.hpp"

namespace wengert::benchmarks {

/// Which of the memory's limits a kernel runs against.
enum class Traffic : std::uint8_t { copy, read, update };

struct KernelBenchmark {
  std::string name;  ///< the kernel's, and what tells two of one kernel apart after a slash
  Traffic traffic;
  double bytes;  ///< that a call has to move at least
  /// Makes the arguments on the current backend; the result is one call.
  std::function<std::function<void()>(Kernels& kernels)> make;
  double flops = 0.0;  ///< where these matter more
};

std::vector<KernelBenchmark> kernel_benchmarks();

}  // namespace wengert::benchmarks
