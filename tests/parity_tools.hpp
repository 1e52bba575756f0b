#pragma once
/// What the parity tests share: the cases of parity/make.py, read from its files and counted, and how they are
/// compared.

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "wengert/layers/module.hpp"

namespace parity {

using namespace wengert;

using Inputs = std::vector<Tensor>;

/// float32, and float64 where the current backend has it.
std::vector<DType> types();

/// On the current backend, floating values as `dtype`.
Tensor here(const Tensor& x, DType dtype);

/// All tensors of a file, on the host.
NamedTensors read(const std::string& file);

/// The words of a case's name, and its tensors by what follows the slash.
struct Fixture {
  std::string name{};
  std::vector<std::string> words{};
  std::map<std::string, Tensor> tensors{};
  mutable std::set<std::string> used{};

  bool has(const char* word) const;
  /// A tensor, which counts as read from then on.
  const Tensor& at(const std::string& key) const;
  /// in0, in1, ...; the floating ones require grad.
  Inputs inputs(DType dtype) const;
  /// What begins with `prefix`: the state dict of a layer, or its gradients.
  NamedTensors part(const std::string& prefix, DType dtype) const;
};

double forward_tolerance(DType dtype);
double gradient_tolerance(DType dtype);

/// The cases of a file.
class Cases {
 public:
  /// `what` they are of: "operations".
  Cases(const std::string& file, const char* what);
  const std::vector<Fixture>& all() const { return fixtures_; }

  /// Holds values against PyTorch's, each difference measured against the size of the value and of those around it.
  void value(const Tensor& got, const Tensor& wanted) { hold(values_, got, wanted, forward_tolerance(got.dtype())); }
  void gradient(const Tensor& got, const Tensor& wanted) {
    hold(gradients_, got, wanted, gradient_tolerance(got.dtype()));
  }
  /// Runs one case and holds its result and all gradients against PyTorch's.
  void compare(const Fixture& fixture, DType dtype, const std::function<Tensor(const Inputs&)>& run,
               const layers::Module* module = nullptr);
  /// Checks that every tensor of every case was read, and prints what was compared.
  void finish() const;

 private:
  struct Tally {
    std::size_t count = 0;
    double worst = 0.0;
  };
  using Tallies = std::map<DType, Tally>;
  static void hold(Tallies& tallies, const Tensor& got, const Tensor& wanted, double tolerance);

  const char* what_;
  std::vector<Fixture> fixtures_;
  Tallies values_, gradients_;
};

}  // namespace parity
