#pragma once
/// Intrusive reference counting, and pools that recycle the counted objects so that a steady step never calls malloc.

#include <atomic>
#include <cstddef>
#include <utility>

namespace wengert::detail {

/// Base of counted objects. The count starts at 0; `Ref` keeps it. `T` provides `static void destroy(T*)`.
struct Counted {
  std::atomic<std::size_t> references{0};
};

/// Owning pointer to a counted object; as cheap to copy as a raw pointer and an atomic increment.
template <class T>
class Ref {
 public:
  Ref() = default;
  explicit Ref(T* object) : object_(object) { retain(); }
  Ref(const Ref& other) : object_(other.object_) { retain(); }
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() {
    if (object_ && object_->references.fetch_sub(1, std::memory_order_acq_rel) == 1) T::destroy(object_);
  }

  T* get() const { return object_; }
  T* operator->() const { return object_; }
  T& operator*() const { return *object_; }
  explicit operator bool() const { return object_ != nullptr; }
  /// True when this handle is the only one.
  bool unique() const { return object_ && object_->references.load(std::memory_order_acquire) == 1; }
  friend bool operator==(const Ref& a, const Ref& b) { return a.object_ == b.object_; }

 private:
  void retain() {
    if (object_) object_->references.fetch_add(1, std::memory_order_relaxed);
  }
  T* object_ = nullptr;
};

}  // namespace wengert::detail
