#pragma once
/// Everything that a training script needs. For writers of operations and backends there are wengert/kernels.hpp and
/// wengert/bits.hpp besides; for xtensor arrays, wengert/xtensor.hpp.

#include "wengert/backend.hpp"
#include "wengert/data.hpp"
#include "wengert/error.hpp"
#include "wengert/gradcheck.hpp"
#include "wengert/gradient.hpp"
#include "wengert/io.hpp"
#include "wengert/layers.hpp"
#include "wengert/named.hpp"
#include "wengert/ops.hpp"
#include "wengert/optim.hpp"
#include "wengert/random.hpp"
#include "wengert/report.hpp"
#include "wengert/tape.hpp"
#include "wengert/tensor.hpp"
