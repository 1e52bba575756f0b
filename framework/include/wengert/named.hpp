#pragma once
/// Lists of named tensors: what a Module hands to optimisers and files.

#include <string>
#include <string_view>
#include <vector>

#include "wengert/tensor.hpp"

namespace wengert {

struct NamedTensor {
  std::string name;  ///< a dotted path: "embed.pos_embed.weight"
  Tensor tensor;
};
using NamedTensors = std::vector<NamedTensor>;

/// The first tensor of that name; undefined if there is none.
inline Tensor find(const NamedTensors& tensors, std::string_view name) {
  for (const NamedTensor& entry : tensors)
    if (entry.name == name) return entry.tensor;
  return {};
}

/// Those whose name satisfies `wanted(name)`, in their order. To make the parameter groups of an optimiser.
template <class Wanted>
NamedTensors select(const NamedTensors& tensors, Wanted wanted) {
  NamedTensors out;
  for (const NamedTensor& entry : tensors)
    if (wanted(std::string_view(entry.name))) out.push_back(entry);
  return out;
}

}  // namespace wengert
