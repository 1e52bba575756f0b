// The entry point of libwengert_cuda.so.
#include "wengert/plugin.hpp"

#include "kernels.hpp"

WENGERT_PLUGIN("cuda", wengert::cuda::instance)
