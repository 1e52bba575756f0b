#pragma once
// What a Tensor handle points to. Private to the core and to tests.

#include <atomic>
#include <memory>
#include <string>

#include "pool.hpp"
#include "wengert/gradient.hpp"
#include "wengert/tensor.hpp"

namespace wengert::detail {

struct Node;
struct TapeState;

// What only leaves and named tensors have.
struct Leaf {
  std::string name;
  Gradient gradient;
  std::atomic<TapeState*> tape{nullptr};  // whose backward pass is adding to `pending`; one at a time
  Gradient pending;                       // of that pass
  TensorImpl* next_pending = nullptr;     // list of the leaves that this pass has reached
};

struct TensorImpl : Counted {
  Shape shape;
  DType dtype = DType::float32;
  bool requires_grad = false;  // as a leaf
  Backend* backend = nullptr;
  Ref<Storage> storage;
  // Where the tape with this serial number recorded it. The pointer is meaningless once that tape is gone.
  std::uint64_t tape = 0;
  Node* node = nullptr;
  std::unique_ptr<Leaf> leaf;

  Leaf& leaf_state() {
    if (!leaf) leaf = std::make_unique<Leaf>();
    return *leaf;
  }
  static void destroy(TensorImpl* impl) noexcept {
    impl->~TensorImpl();
    Pool<TensorImpl>::release(impl);
  }
};

// True for a result that a living tape of this thread has recorded.
bool recorded_now(const TensorImpl& impl);

struct TensorAccess {
  static Tensor make(Ref<Storage> storage, const Shape& shape, DType dtype, Backend& backend) {
    auto* impl = new (Pool<TensorImpl>::allocate()) TensorImpl;
    impl->shape = shape;
    impl->dtype = dtype;
    impl->backend = &backend;
    impl->storage = std::move(storage);
    impl->references.store(1, std::memory_order_relaxed);
    return Tensor(impl);
  }
  // Same memory under another shape of as many elements; not recorded.
  static Tensor alias(const Tensor& tensor, const Shape& shape) {
    return make(impl(tensor).storage, shape, impl(tensor).dtype, *impl(tensor).backend);
  }
  // `what` is said to have met an undefined tensor.
  static TensorImpl& impl(const Tensor& tensor, const char* what) {
    if (!tensor.impl_) throw Error(std::string(what) + ": the tensor is undefined");
    return *tensor.impl_;
  }
  static TensorImpl& impl(const Tensor& tensor) { return impl(tensor, "Tensor"); }
  static TensorImpl* pointer(const Tensor& tensor) { return tensor.impl_; }
  // A handle to an object that is already counted.
  static Tensor handle(TensorImpl* impl) {
    if (impl) retain(impl);
    return Tensor(impl);
  }
  // True when this handle is the only way to reach the memory.
  static bool unique(const Tensor& tensor) {
    const TensorImpl& value = impl(tensor);
    return value.references.load(std::memory_order_acquire) == 1 && value.storage.unique() && value.storage->owned();
  }
};

}  // namespace wengert::detail
