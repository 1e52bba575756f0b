#pragma once
/// ModuleList: several modules of one kind.

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "wengert/error.hpp"
#include "wengert/layers/module.hpp"

namespace wengert::layers {

/// Owns modules and registers them under their numbers: "0", "1", ... Fill it before you register it:
///
///     layers::ModuleList<layers::TransformerBlock> blocks;
///     for (int i = 0; i < 12; ++i) blocks.emplace_back({.embed_dim = 768, .num_heads = 12, .feedforward_dim = 3072});
///     register_module("blocks", blocks);
template <class M>
class ModuleList : public Module {
 public:
  M& emplace_back(const typename M::Options& options) {
    modules_.push_back(std::make_unique<M>(options));
    register_module(std::to_string(modules_.size() - 1), *modules_.back());
    return *modules_.back();
  }
  std::size_t size() const { return modules_.size(); }
  /// Throws IndexError for i >= size().
  M& operator[](std::size_t i) { return *modules_[checked(i)]; }
  const M& operator[](std::size_t i) const { return *modules_[checked(i)]; }

 private:
  std::size_t checked(std::size_t i) const {
    if (i < size()) return i;
    throw IndexError("ModuleList: index " + std::to_string(i) + " is outside [0, " + std::to_string(size()) + ")");
  }
  std::vector<std::unique_ptr<M>> modules_;
};

}  // namespace wengert::layers
