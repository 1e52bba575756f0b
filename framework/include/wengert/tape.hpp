#pragma once
/// The tape: the list of operations that this thread executed, kept so that it can be run backwards.
/// Source: R. E. Wengert, "A simple automatic derivative evaluation program", CACM 7(8), 1964.

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

#include "wengert/gradient.hpp"
#include "wengert/tensor.hpp"

namespace wengert {

namespace detail {
struct Node;
struct TapeState;
struct ModeGuard {
  ModeGuard* outer;
  bool record;
};
}  // namespace detail

struct BackwardOptions {
  Tensor seed{};            ///< upstream gradient, of the loss's shape; needed unless the loss has one element
  bool keep_graph = false;  ///< leave the nodes in place for another backward
};

/// Records on this thread from its construction to the end of its scope. Tapes nest: the innermost records. What a tape
/// has recorded becomes a constant when the tape ends; to use a value of an outer tape on an inner one, `detach` it.
class Tape {
 public:
  Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;
  /// Drops every node; the next tape reuses their memory. Must run on the thread that made the tape.
  ~Tape();

  /// Adds d loss / d leaf to the gradient of every leaf that the loss depends on. Consumes the nodes it reaches.
  /// Throws TapeError, before any gradient has changed, when: the loss has more than one element and there is no seed;
  /// the loss does not depend on anything that requires grad; a node was consumed before; a saved value has since been
  /// written. When a kernel fails half way, no gradient has changed either, but the nodes passed by then are consumed.
  /// Passes of several threads that reach one and the same leaf must follow one another: a TapeError says so where they
  /// meet.
  void backward(const Tensor& loss, const BackwardOptions& options = {});

  /// Number of operations recorded so far.
  std::int64_t size() const;

 private:
  detail::TapeState* state_;
};

/// Pauses recording on this thread until the end of the scope.
class NoGrad {
 public:
  NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;
  ~NoGrad();

 private:
  detail::ModeGuard guard_;
};

/// Resumes recording inside a NoGrad, if there is a tape.
class EnableGrad {
 public:
  EnableGrad();
  EnableGrad(const EnableGrad&) = delete;
  EnableGrad& operator=(const EnableGrad&) = delete;
  ~EnableGrad();

 private:
  detail::ModeGuard guard_;
};

/// True when an operation on something that requires grad would be recorded on this thread now.
bool recording();
/// Nodes on all tapes of all threads.
std::int64_t live_nodes();

// --- For writers of operations ---

/// The tensors that an operation keeps for its backward, in an order of its own; at most 8, undefined ones allowed.
/// Also what a fused kernel hands to its own backward.
class Saved {
 public:
  static constexpr std::size_t capacity = 8;
  Saved() = default;
  Saved(std::initializer_list<Tensor> tensors) {
    for (const Tensor& tensor : tensors) push(tensor);
  }
  void push(Tensor tensor);
  std::size_t size() const { return size_; }
  const Tensor& operator[](std::size_t i) const { return tensors_[i]; }

 private:
  friend class BackwardStep;
  Tensor tensors_[capacity];
  std::size_t size_ = 0;
};

/// What the backward of one operation gets: the upstream gradient, what it saved, and where the results go.
class BackwardStep {
 public:
  /// d loss / d output: the output's shape, type and backend.
  const Tensor& grad() const { return grad_; }
  const Saved& saved() const { return saved_; }
  /// Saved value `i` for the operation to overwrite: itself where this is its last use and nobody else holds its
  /// memory, otherwise a copy. Its place in `saved()` is empty afterwards. Throws TapeError if there is no such value.
  Tensor take(std::size_t i);
  /// True when input `i` leads to a leaf that requires grad. Compute nothing for the others.
  bool needs(std::size_t i) const;
  /// Adds the gradient of input `i`, of that input's shape. Rows are kept as rows at leaves and added into zeros
  /// elsewhere.
  void give(std::size_t i, Gradient gradient);

 private:
  friend struct detail::TapeState;
  BackwardStep(detail::TapeState& tape, detail::Node& node, const Tensor& grad, Saved& saved, bool last)
      : tape_(tape), node_(node), grad_(grad), saved_(saved), last_(last) {}
  detail::TapeState& tape_;
  detail::Node& node_;
  const Tensor& grad_;
  Saved& saved_;
  bool last_;  // the graph is not kept
};

namespace detail {
using BackwardThunk = void (*)(void* closure, BackwardStep& step);
using DestroyThunk = void (*)(void* closure);
/// Appends a node and returns room for its closure; `op` must be a literal.
void* append(const char* op, const Tensor& out, std::span<const Tensor> inputs, const Saved& saved,
             std::size_t closure_bytes, std::size_t closure_alignment, BackwardThunk backward, DestroyThunk destroy);
}  // namespace detail

/// True when an operation on these inputs has to be recorded. Throws TapeError, naming `op`, when one of them belongs
/// to an outer tape of this thread: its gradient would silently be lost.
bool needs_record(const char* op, std::span<const Tensor> inputs);
inline bool needs_record(const char* op, std::initializer_list<Tensor> inputs) {
  return needs_record(op, std::span(inputs.begin(), inputs.size()));
}

/// Records that `out` came from `inputs` by `op` (a literal), and how to go back: `backward(BackwardStep&)` is called
/// at most once per backward pass, with recording paused. Call it only if `needs_record(op, inputs)`. `saved` values
/// are checked for changes before any backward runs. Returns `out`.
template <class Backward>
Tensor record(const char* op, Tensor out, std::span<const Tensor> inputs, const Saved& saved, Backward backward) {
  static_assert(std::is_nothrow_move_constructible_v<Backward>,
                "a tape cannot take back a node whose closure failed to move");
  void* closure = detail::append(
      op, out, inputs, saved, sizeof(Backward), alignof(Backward),
      [](void* f, BackwardStep& step) { (*static_cast<Backward*>(f))(step); },
      [](void* f) { static_cast<Backward*>(f)->~Backward(); });
  new (closure) Backward(std::move(backward));
  return out;
}
template <class Backward>
Tensor record(const char* op, Tensor out, std::initializer_list<Tensor> inputs, const Saved& saved, Backward backward) {
  return record(op, std::move(out), std::span(inputs.begin(), inputs.size()), saved, std::move(backward));
}

}  // namespace wengert
