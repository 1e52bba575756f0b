// The emulated backend as a plug-in.
#include "wengert/plugin.hpp"
#include "kernels.hpp"

WENGERT_PLUGIN("cuda-emulated", wengert::cuda::instance)
