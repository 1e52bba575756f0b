#pragma once
/// Files: safetensors, NumPy's .npy, checkpoints; weights of other programs.

#include "wengert/checkpoint.hpp"
#include "wengert/npy.hpp"
#include "wengert/rename.hpp"
#include "wengert/safetensors.hpp"
