#pragma once
/// Files: safetensors, NumPy's .npy, checkpoints.

#include "wengert/checkpoint.hpp"
#include "wengert/npy.hpp"
#include "wengert/safetensors.hpp"
