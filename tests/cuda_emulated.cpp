// Registers the backend "cuda-emulated": the CUDA kernels, compiled for the CPU and run by an emulator that checks
// them.

#include "kernels.hpp"
#include "wengert/backend.hpp"

namespace {

const bool registered = [] {
  wengert::register_backend("cuda-emulated", wengert::cuda::instance);
  return true;
}();

}  // namespace
