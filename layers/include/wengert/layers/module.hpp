#pragma once
/// Module: a layer or a model. It knows its parameters, buffers and children by name.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "wengert/named.hpp"
#include "wengert/tensor.hpp"

namespace wengert::layers {

/// The default of a size that has to be given: a constructor that finds it throws ValueError.
inline constexpr std::int64_t required = INT64_MIN;

struct LoadOptions {
  bool strict = true;  ///< missing and unexpected keys are errors
};
struct LoadResult {
  std::vector<std::string> missing;     ///< keys of the module that the dict lacks
  std::vector<std::string> unexpected;  ///< keys of the dict that the module lacks
};

/// Base of layers and models. Parameters, buffers and children are ordinary members; the constructor registers each
/// under a name (the module keeps its address, which is why modules are neither copied nor moved):
///
///     struct Model : layers::Module {
///       layers::TransformerEmbedding embed{{.vocab_size = 100, .max_seq_len = 16, .embed_dim = 32}};
///       layers::Linear head{{.in_features = 32, .out_features = 100, .bias = false}};
///       Model() {
///         register_module("embed", embed);
///         register_module("head", head);
///         head.weight = embed.token_embed.weight;  // tied: one tensor under two names
///       }
///     };
///
/// A path joins the names with dots: "embed.token_embed.weight". An undefined tensor counts as absent. Each parameter's
/// Tensor::name is its path in the outermost module, for error texts.
class Module {
 public:
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  virtual ~Module() = default;

  /// All parameters of this module and its children, each tensor once, under its first name: own ones first, then child
  /// by child. `prefix` and a dot are put before each name.
  NamedTensors named_parameters(std::string_view prefix = {}) const;
  /// The same without names.
  std::vector<Tensor> parameters() const;
  /// All buffers: tensors that belong to the module and are not trained. Those that are not persistent, too.
  NamedTensors named_buffers(std::string_view prefix = {}) const;
  /// Elements of all parameters, frozen ones included, tied ones once.
  std::int64_t num_parameters() const;

  /// Training mode (the start) or evaluation, for this module and its children: Dropout drops only in training.
  void train(bool training = true);
  void eval() { train(false); }
  bool is_training() const { return training_; }

  /// Moves all parameters, gradients and buffers to another backend. They stay the same tensors: handles elsewhere and
  /// in optimisers see them there. Throws BackendError or DTypeError, with nothing moved, if that backend cannot hold
  /// them.
  void to(Backend& backend);
  void to(std::string_view backend_name) { to(wengert::backend(backend_name)); }

  /// Removes the gradients of all parameters.
  void zero_grad();

  /// Parameters and persistent buffers by path, tied ones under each of their names. The tensors share memory with the
  /// module and are cut from the tape; `clone` them to keep the present values.
  NamedTensors state_dict() const;
  /// Copies values into this module's own tensors, from any backend. Everything is checked first; if something is
  /// wrong, one Error lists all of it and nothing has changed: missing and unexpected keys (unless not strict); a shape
  /// or a type that differs, a key that comes twice, an undefined tensor, tied names with different values (always); "0
  /// of N keys matched" (always, if there are any). Nothing is broadcast, resized or converted.
  LoadResult load_state_dict(const NamedTensors& state, const LoadOptions& options = {});

 protected:
  Module() = default;
  /// Registers a member as a parameter; a defined tensor is set to require grad or not. Throws Error when the name is
  /// empty, has a dot, or is taken.
  void register_parameter(std::string_view name, Tensor& member, bool requires_grad = true);
  /// A buffer that is not persistent is not in the state dict.
  void register_buffer(std::string_view name, Tensor& member, bool persistent = true);
  /// A child lives at least as long as this module: a member, or what a member owns.
  void register_module(std::string_view name, Module& child);

 private:
  enum class Role : std::uint8_t { parameter, persistent_buffer, buffer };
  struct Member {
    std::string name;
    Tensor* tensor;
    Role role;
  };
  struct Child {
    std::string name;
    Module* module;
  };

  void check_name(std::string_view name) const;
  void give_names();
  /// Every defined tensor of this module and its children under its path.
  void collect(const std::string& prefix, std::vector<Member>& out) const;
  std::vector<Member> members(std::string_view prefix = {}) const;
  NamedTensors once(std::string_view prefix, bool parameters) const;

  std::vector<Member> members_;
  std::vector<Child> children_;
  bool training_ = true;
};

}  // namespace wengert::layers
