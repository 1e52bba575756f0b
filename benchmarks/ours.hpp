#pragma once
/// The work of configurations.hpp done by Wengert: what a training script would write, tape, checks and allocator
/// included.

#include <memory>
#include <string>

#include "configurations.hpp"
#include "memory_limit.hpp"
#include "wengert/wengert.hpp"

namespace wengert::benchmarks {

class OurLayer {
 public:
  /// On the current backend.
  explicit OurLayer(const Configuration& c);

  /// Chooses what `step` does. Optimisers start anew; the tables go on as they are.
  void prepare(Work work);
  /// One step; returns the seconds that it took.
  double step(const Tensor& ids);

  /// The batch as a tensor (batch, length).
  Tensor ids(IdStream& stream) const;

 private:
  Tensor forward(const Tensor& ids) const;
  void run(const Tensor& ids);

  Configuration configuration_;
  layers::TransformerEmbedding embed_;
  layers::Linear linear_;
  Tensor upstream_;
  Work work_ = Work::eval_forward;
  std::unique_ptr<optim::Optimizer> optimizer_;
};

/// What a step of `work` has to move at least, with `rows` different ids in the batch, and how long that takes at the
/// memory's speed.
struct LeastTraffic {
  double forward = 0.0;   ///< bytes: token rows and positions in, result out
  double backward = 0.0;  ///< upstream gradient in, row gradients out
  double update = 0.0;    ///< parameters and moments in and out, gradients in
  double bytes() const { return forward + backward + update; }
  /// Forward and backward are copies; an optimiser updates in place.
  double seconds(const MemoryLimit& limit) const {
    return 1e-9 * ((forward + backward) / limit.best_copy() + update / limit.update);
  }
};
LeastTraffic least_traffic(const Configuration& c, Work work, double rows);
/// Different ids in a batch, on average.
double different_ids(const Configuration& c, const std::string& kind);

/// "avx512" where the backend has kernels for several architectures, else "-".
std::string architecture_of(Backend& backend);
/// Lines that say which kernels are the backend's own, and from where the others come.
std::string account_of(Backend& backend);

}  // namespace wengert::benchmarks
