#pragma once
/// All layers.

#include "wengert/layers/attention.hpp"
#include "wengert/layers/bert_embedding.hpp"
#include "wengert/layers/dropout.hpp"
#include "wengert/layers/embedding.hpp"
#include "wengert/layers/layer_norm.hpp"
#include "wengert/layers/linear.hpp"
#include "wengert/layers/module.hpp"
#include "wengert/layers/module_list.hpp"
#include "wengert/layers/transformer_block.hpp"
#include "wengert/layers/transformer_embedding.hpp"
