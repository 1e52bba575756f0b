#pragma once
/// All layers.

#include "wengert/layers/dropout.hpp"
#include "wengert/layers/embedding.hpp"
#include "wengert/layers/linear.hpp"
#include "wengert/layers/module.hpp"
#include "wengert/layers/transformer_embedding.hpp"
