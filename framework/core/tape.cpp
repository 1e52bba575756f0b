#include "wengert/tape.hpp"

#include <fmt/format.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "arena.hpp"
#include "tensor_impl.hpp"
#include "wengert/kernels.hpp"

namespace wengert {

using detail::Leaf;
using detail::TensorAccess;
using detail::TensorImpl;

namespace detail {

// A value that an operation keeps for its backward: a handle of its own, so that it stays on the backend it was
// recorded on, and the version it had.
struct SavedValue {
  Tensor value;
  Tensor original;  // for its name, if it can have one
  std::uint64_t version = 0;
};

// An operand: another node of this tape, or a leaf that collects a gradient, or neither.
struct Input {
  Node* node = nullptr;
  Tensor leaf;
};

struct Node {
  Node* previous = nullptr;
  const char* op = "";
  Backend* backend = nullptr;
  DType dtype = DType::float32;
  bool consumed = false;
  std::uint64_t reached = 0;  // number of the backward pass that last reached it
  Shape shape;                // of the output
  Tensor grad;                // of the output, while a backward pass runs
  std::span<Input> inputs;
  std::span<SavedValue> saved;
  void* closure = nullptr;
  BackwardThunk backward = nullptr;
  DestroyThunk destroy = nullptr;

  // Lets go of what only a backward needs.
  void release() {
    if (closure) destroy(closure);
    closure = nullptr;
    for (SavedValue& value : saved) value.~SavedValue();
    saved = {};
    for (Input& input : inputs) input.leaf = {};
  }
};

struct ThreadState;

struct TapeState {
  std::uint64_t serial = 0;
  ThreadState* thread = nullptr;  // that made it
  TapeState* outer = nullptr;
  Arena arena;
  Node* last = nullptr;
  Node* earliest = nullptr;  // that the present backward pass reaches
  std::int64_t size = 0;
  TensorImpl* pending = nullptr;  // leaves that the running backward has reached

  void backward(const Tensor& loss, const BackwardOptions& options);
  void check_reachable(Node* root);
  void run(Node* root, bool keep_graph);
  void give_leaf(const Tensor& leaf, Gradient gradient);
  void commit();
  void drop_pending() noexcept;
  void clear();
};

// What is thread-local: the stack of tapes and the stack of recording modes.
struct ThreadState {
  TapeState* tape = nullptr;
  ModeGuard* mode = nullptr;
};

namespace {

std::atomic<std::int64_t> nodes_alive{0};
std::atomic<std::uint64_t> next_serial{1};
std::atomic<std::uint64_t> next_pass{1};

thread_local ThreadState thread;
thread_local std::vector<std::unique_ptr<TapeState>> spares;

template <class T>
std::span<T> make(Arena& arena, std::size_t count) {
  auto* first = static_cast<T*>(arena.allocate(sizeof(T) * count, alignof(T)));
  for (std::size_t i = 0; i < count; ++i) new (first + i) T;
  return {first, count};
}

// A gradient where `backend` can use it.
Gradient on(Gradient gradient, Backend& backend) {
  if (gradient.is_dense()) return gradient.tensor().to(backend);
  const RowGrad& rows = gradient.rows();
  return RowGrad{rows.ids.to(backend), rows.rows.to(backend), rows.num_rows};
}

}  // namespace

void TapeState::clear() {
  nodes_alive -= size;
  for (Node* node = last; node; node = node->previous) {
    node->release();
    node->grad = {};
  }
  last = nullptr;
  size = 0;
  arena.reset();
}

// Everything that can go wrong is found here, before the first gradient changes. Ends at the earliest node that is
// reached, so that many short passes over one long tape take time that follows their own length.
void TapeState::check_reachable(Node* root) {
  const std::uint64_t pass = next_pass++;
  std::int64_t waiting = 0;  // nodes that are reached and not yet visited
  const auto reach = [&](Node* node) {
    if (node->reached == pass) return;
    node->reached = pass;
    ++waiting;
  };
  reach(root);
  for (Node* node = root; waiting > 0; node = node->previous) {
    if (node->reached != pass) continue;
    --waiting;
    if (node->consumed)
      throw TapeError(fmt::format(
          "backward: {} was consumed by an earlier backward; pass keep_graph = true to the first one", node->op));
    for (std::size_t i = 0; i < node->saved.size(); ++i) {
      const SavedValue& saved = node->saved[i];
      if (!saved.value.defined() || saved.value.storage().version() == saved.version) continue;
      const std::string name = saved.original.defined() ? saved.original.name() : std::string();
      throw TapeError(
          fmt::format("backward: {} saved {} (shape {}) at version {}, but it was changed since and is at version {}",
                      node->op, name.empty() ? fmt::format("value {}", i) : fmt::format("'{}'", name),
                      saved.value.shape().str(), saved.version, saved.value.storage().version()));
    }
    for (const Input& input : node->inputs)
      if (input.node) reach(input.node);
    earliest = node;
  }
}

void TapeState::run(Node* root, bool keep_graph) {
  const std::uint64_t pass = root->reached;
  for (Node* node = root; node != earliest->previous; node = node->previous) {
    if (node->reached != pass) continue;
    if (const Tensor grad = std::move(node->grad); grad.defined()) {
      Saved saved;
      for (const SavedValue& value : node->saved) saved.push(value.value);
      BackwardStep step(*this, *node, grad, saved, !keep_graph);
      node->backward(node->closure, step);
    }
    if (!keep_graph) {
      node->consumed = true;
      node->release();
    }
  }
}

void TapeState::give_leaf(const Tensor& leaf, Gradient gradient) {
  TensorImpl& impl = TensorAccess::impl(leaf);
  Leaf& state = impl.leaf_state();
  TapeState* none = nullptr;
  if (state.tape.compare_exchange_strong(none, this)) {
    retain(&impl);  // until the pass ends
    state.next_pending = std::exchange(pending, &impl);
  } else if (none != this) {
    throw TapeError(
        fmt::format("backward: a backward pass of another thread is adding to {}; let them run one after the other",
                    state.name.empty() ? "this leaf" : fmt::format("'{}'", state.name)));
  }
  state.pending.add(on(std::move(gradient), leaf.backend()));  // the leaf may have moved since it was recorded
}

// Adds what the pass has found to the leaves: all of it, or on an exception nothing.
void TapeState::commit() {
  for (TensorImpl* impl = pending; impl; impl = impl->leaf->next_pending) {
    Leaf& state = *impl->leaf;
    Gradient total = state.gradient;  // a second handle, so that nothing is added in place
    total.add(std::move(state.pending));
    total.own();
    state.pending = std::move(total);
  }
  for (TensorImpl* impl = pending; impl; impl = impl->leaf->next_pending)
    impl->leaf->gradient = std::move(impl->leaf->pending);
}

void TapeState::drop_pending() noexcept {
  while (TensorImpl* impl = pending) {
    Leaf& state = *impl->leaf;
    pending = std::exchange(state.next_pending, nullptr);
    state.pending = {};
    state.tape = nullptr;
    release(impl);
  }
}

void TapeState::backward(const Tensor& loss, const BackwardOptions& options) {
  const TensorImpl& impl = TensorAccess::impl(loss, "backward");
  Node* root = impl.tape == serial ? impl.node : nullptr;
  if (!root && !impl.requires_grad) {
    throw TapeError(impl.tape == 0 ? "backward: the loss does not depend on anything that requires grad (was it "
                                     "computed under NoGrad, or before the tape?)"
                                   : "backward: the loss was recorded on another tape");
  }
  Tensor seed = options.seed;
  if (seed.defined()) {
    if (!(seed.shape() == loss.shape()))
      throw ShapeError(
          fmt::format("backward: the seed has shape {}, the loss {}", seed.shape().str(), loss.shape().str()));
    if (seed.dtype() != loss.dtype())
      throw DTypeError(
          fmt::format("backward: the seed is {}, the loss {}", name_of(seed.dtype()), name_of(loss.dtype())));
    if (&seed.backend() != &loss.backend())
      throw BackendError(
          fmt::format("backward: the seed is on {}, the loss on {}", seed.backend().name(), loss.backend().name()));
  } else if (loss.numel() != 1) {
    throw TapeError(fmt::format(
        "backward: the loss has shape {}; reduce it to one element or give a seed of that shape", loss.shape().str()));
  }
  if (root) check_reachable(root);

  const NoGrad pause;
  struct End {  // of the pass, however it ends
    TapeState& tape;
    Node* root;
    ~End() {
      tape.drop_pending();
      if (!root) return;
      for (Node* node = root; node != tape.earliest->previous; node = node->previous) node->grad = {};
    }
  } end{*this, root};
  if (!seed.defined()) seed = ones(loss.shape(), loss);
  if (root) {
    root->grad = seed.detach();
    run(root, options.keep_graph);
  } else {
    give_leaf(loss, seed.detach());
  }
  commit();
}

void* append(const char* op, const Tensor& out, std::span<const Tensor> inputs, const Saved& saved,
             std::size_t closure_bytes, std::size_t closure_alignment, BackwardThunk backward, DestroyThunk destroy) {
  TapeState& tape = *thread.tape;
  Arena& arena = tape.arena;
  auto* node = new (arena.allocate(sizeof(Node), alignof(Node))) Node;
  node->op = op;
  node->backend = &out.backend();
  node->dtype = out.dtype();
  node->shape = out.shape();
  node->backward = backward;
  node->destroy = destroy;
  void* closure = arena.allocate(closure_bytes, closure_alignment);
  node->inputs = make<Input>(arena, inputs.size());
  node->saved = make<SavedValue>(arena, saved.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const TensorImpl* impl = TensorAccess::pointer(inputs[i]);
    if (!impl) continue;
    if (impl->tape == tape.serial)
      node->inputs[i].node = impl->node;
    else if (impl->requires_grad)
      node->inputs[i].leaf = inputs[i];
  }
  try {
    for (std::size_t i = 0; i < saved.size(); ++i) {
      SavedValue& value = node->saved[i];
      if (!saved[i].defined()) continue;
      value.value = saved[i].detach();
      if (TensorAccess::impl(saved[i]).leaf) value.original = saved[i];
      value.version = saved[i].storage().version();
    }
  } catch (...) {
    node->release();
    throw;
  }
  // From here on nothing throws: the node becomes part of the tape, and so does the output.
  node->closure = closure;
  node->previous = std::exchange(tape.last, node);
  ++tape.size;
  ++nodes_alive;
  TensorImpl& impl = TensorAccess::impl(out);
  impl.tape = tape.serial;
  impl.node = node;
  return closure;
}

}  // namespace detail

bool detail::recorded_now(const TensorImpl& impl) {
  for (const TapeState* tape = thread.tape; tape; tape = tape->outer)
    if (tape->serial == impl.tape) return true;
  return false;
}

using detail::thread;

Tape::Tape() {
  if (detail::spares.empty()) {
    state_ = new detail::TapeState;
  } else {
    state_ = detail::spares.back().release();
    detail::spares.pop_back();
  }
  state_->thread = &thread;
  state_->serial = detail::next_serial++;
  state_->outer = std::exchange(thread.tape, state_);
}

Tape::~Tape() {
  if (state_->thread != &thread) {
    std::fputs("wengert: a Tape must end on the thread that made it\n", stderr);
    std::abort();
  }
  // Tapes normally end in reverse order; unlinking from anywhere costs nothing and keeps the others alive.
  for (detail::TapeState** link = &thread.tape; *link; link = &(*link)->outer) {
    if (*link != state_) continue;
    *link = state_->outer;
    break;
  }
  state_->clear();
  detail::spares.emplace_back(state_);
}

void Tape::backward(const Tensor& loss, const BackwardOptions& options) { state_->backward(loss, options); }

std::int64_t Tape::size() const { return state_->size; }

// --- Recording mode: a stack of guards, of which the innermost counts ---

namespace {

void push(detail::ModeGuard& guard, bool record) {
  guard.record = record;
  guard.outer = std::exchange(thread.mode, &guard);
}
// Guards that end out of order unlink themselves and leave the others in force.
void pop(detail::ModeGuard& guard) {
  for (detail::ModeGuard** link = &thread.mode; *link; link = &(*link)->outer) {
    if (*link != &guard) continue;
    *link = guard.outer;
    return;
  }
}

}  // namespace

NoGrad::NoGrad() { push(guard_, false); }
NoGrad::~NoGrad() { pop(guard_); }
EnableGrad::EnableGrad() { push(guard_, true); }
EnableGrad::~EnableGrad() { pop(guard_); }

bool recording() { return thread.tape && (!thread.mode || thread.mode->record); }

std::int64_t live_nodes() { return detail::nodes_alive; }

bool needs_record(const char* op, std::span<const Tensor> inputs) {
  if (!recording()) return false;
  bool needed = false;
  for (const Tensor& input : inputs) {
    const TensorImpl* impl = TensorAccess::pointer(input);
    if (!impl) continue;
    if (impl->requires_grad || impl->tape == thread.tape->serial) {
      needed = true;
    } else if (impl->tape != 0) {
      for (const detail::TapeState* tape = thread.tape->outer; tape; tape = tape->outer)
        if (tape->serial == impl->tape)
          throw TapeError(
              fmt::format("{}: an operand was recorded on an outer tape; its gradient would be lost. detach() it to "
                          "use it as a constant",
                          op));
    }
  }
  return needed;
}

// --- Saved values and one step back ---

void Saved::push(Tensor tensor) {
  if (size_ == capacity) throw TapeError(fmt::format("Saved: an operation can save at most {} tensors", capacity));
  tensors_[size_++] = std::move(tensor);
}

bool BackwardStep::needs(std::size_t i) const { return node_.inputs[i].node || node_.inputs[i].leaf.defined(); }

Tensor BackwardStep::take(std::size_t i) {
  if (i >= saved_.size() || !saved_[i].defined())
    throw TapeError(fmt::format("take: {} has no saved value {}, or it was taken", node_.op, i));
  Tensor value = std::move(saved_.tensors_[i]);
  if (last_) {
    node_.consumed = true;  // even if what follows throws
    node_.saved[i].value = {};
    if (TensorAccess::unique(value)) return value;
  }
  return value.clone();
}

void BackwardStep::give(std::size_t i, Gradient gradient) {
  if (!needs(i)) return;
  detail::Input& input = node_.inputs[i];
  const Shape& shape = input.node ? input.node->shape : input.leaf.shape();
  const DType dtype = input.node ? input.node->dtype : input.leaf.dtype();
  if (!(gradient.shape() == shape) || gradient.values().dtype() != dtype)
    throw TapeError(fmt::format("backward: {} gave operand {} of shape {} ({}) a gradient of shape {} ({})", node_.op,
                                i, shape.str(), name_of(dtype), gradient.shape().str(),
                                name_of(gradient.values().dtype())));
  if (!input.node) {
    tape_.give_leaf(input.leaf, std::move(gradient));
    return;
  }
  if (&gradient.values().backend() != input.node->backend)
    throw TapeError(fmt::format("backward: {} gave operand {}, which is on {}, a gradient on {}", node_.op, i,
                                input.node->backend->name(), gradient.values().backend().name()));
  Gradient sum(std::move(input.node->grad));
  sum.add(std::move(gradient));
  input.node->grad = sum.dense();
}

}  // namespace wengert
