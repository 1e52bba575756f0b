#pragma once
// Errors of the CUDA runtime as exceptions.

#include <cuda_runtime_api.h>

#include "runtime.hpp"

namespace wengert::cuda::inline WENGERT_CUDA_BUILD {

/// Throws BackendError "cuda: <what><name>: <the runtime's words>" for anything but success. That the runtime is being
/// unloaded is no error: it happens at the end of the process alone, to threads that are still at work then.
void check(cudaError_t error, const char* what, const char* name = "");
/// True once the process is ending and the device can no longer be reached.
bool unloaded();

}  // namespace wengert::cuda::inline WENGERT_CUDA_BUILD
