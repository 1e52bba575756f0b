#pragma once
/// Checkpoints: everything that a training run needs to go on as if it had never stopped, in one safetensors file.

#include <cstdint>
#include <string>

#include "wengert/named.hpp"
#include "wengert/optim.hpp"
#include "wengert/random.hpp"
#include "wengert/safetensors.hpp"

namespace wengert::io {

/// Saving, in a loop over steps:
///
///     io::save_checkpoint(
///         {.model = model.state_dict(), .optimizer = optimizer.state_dict(), .step = step}, "run.ckpt");
///
/// Going on, in a program that has made the same model, optimiser, schedule and settings:
///
///     const io::Checkpoint saved = io::load_checkpoint("run.ckpt");
///     model.load_state_dict(saved.model);
///     optimizer.load_state_dict(saved.optimizer);
///     default_generator().set_state(saved.random);
///     for (std::int64_t step = saved.step + 1; step <= steps; ++step) ...
///
/// The run then ends in the same bits as one that never stopped. Both `load_state_dict` throw, with nothing changed,
/// for keys that are missing or unknown and for shapes that differ.
struct Checkpoint {
  NamedTensors model{};
  optim::OptimizerState optimizer{};
  RandomState random = default_generator().state();
  std::int64_t step = 0;  ///< steps done
  Metadata metadata{};    ///< whatever else; keys that begin with "wengert." are taken
};

/// In the file the tensors are named "model.<name>" and "optimizer.<parameter>.<state>", with a parameter's step number
/// as "optimizer.<parameter>.step"; the rest are metadata. The file is replaced as a whole and flushed, as
/// `save_safetensors` does: killed at any moment, the last good checkpoint loads. Throws IoError.
void save_checkpoint(const Checkpoint& checkpoint, const std::string& path);

/// Throws IoError, also for a safetensors file that is no checkpoint.
Checkpoint load_checkpoint(const std::string& path, Backend& backend = current_backend());

}  // namespace wengert::io
