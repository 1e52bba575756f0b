#pragma once
/// The work of configurations.hpp done by Wengert: what a training script would write, tape, checks and allocator
/// included.

#include <memory>
#include <string>

#include "configurations.hpp"
#include "memory_limit.hpp"
#include "wengert/wengert.hpp"

namespace wengert::benchmarks {

/// One configuration, on the current backend.
class OurModel {
 public:
  virtual ~OurModel() = default;

  /// Chooses what `step` does. Optimisers start anew; parameters go on as they are.
  virtual void prepare(Work work) = 0;
  /// One step; returns the seconds that it took.
  double step(const Tensor& ids);

  /// The batch as a tensor (batch, length); for a transformer (batch, length + 1), because it learns to tell the next.
  Tensor ids(IdStream& stream) const;

 protected:
  explicit OurModel(const Configuration& c) : configuration_(c) {}
  virtual void run(const Tensor& ids) = 0;

  Configuration configuration_;
  std::unique_ptr<optim::Optimizer> optimizer_;
};

/// An OurLayer, or what ours_transformer.cpp has for blocks.
std::unique_ptr<OurModel> make_ours(const Configuration& c);
std::unique_ptr<OurModel> make_our_transformer(const Configuration& c);

/// The embedding stack.
class OurLayer : public OurModel {
 public:
  explicit OurLayer(const Configuration& c);
  void prepare(Work work) override;

 private:
  void run(const Tensor& ids) override;

  layers::TransformerEmbedding embed_;
  layers::Linear linear_;
  Tensor upstream_;
  Work work_ = Work::eval_forward;
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
/// Of a transformer only the update counts: its products have arithmetic to wait for, see `flops`.
LeastTraffic least_traffic(const Configuration& c, Work work, double rows);
/// Different ids in a batch, on average.
double different_ids(const Configuration& c, const std::string& kind);

/// Floating-point operations of the matrix products of a transformer's work, a multiplication and an addition counted
/// as two, attention only as far as it is causal. 0 for the embedding stack.
double flops(const Configuration& c, Work work);
/// GFLOP/s of `linear` in the shape of GPT-2's feed-forward network and 1024 rows, on the fastest backend here, at its
/// best: what a transformer's products could run at.
double measure_matmul_limit();

/// "avx512" where the backend has kernels for several architectures, else "-".
std::string architecture_of(Backend& backend);
/// Lines that say which kernels are the backend's own, and from where the others come.
std::string account_of(Backend& backend);

}  // namespace wengert::benchmarks
