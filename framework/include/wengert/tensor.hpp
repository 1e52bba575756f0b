#pragma once
/// Tensor: a contiguous, row-major array of one element type on one backend. Copying a Tensor copies the handle, not
/// the values.

#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "wengert/backend.hpp"
#include "wengert/detail/ref.hpp"
#include "wengert/dtype.hpp"
#include "wengert/error.hpp"
#include "wengert/shape.hpp"
#include "wengert/storage.hpp"

namespace wengert {

class Gradient;
namespace detail {
struct TensorImpl;
struct TensorAccess;
/// Reference counting of an incomplete type, kept out of line.
void retain(TensorImpl* impl) noexcept;
void release(TensorImpl* impl) noexcept;
}  // namespace detail

class Tensor {
 public:
  /// An undefined tensor: "none". Everything but `defined`, assignment and `operator bool` throws Error on it.
  Tensor() = default;
  Tensor(const Tensor& other) noexcept : impl_(other.impl_) {
    if (impl_) detail::retain(impl_);
  }
  Tensor(Tensor&& other) noexcept : impl_(other.impl_) { other.impl_ = nullptr; }
  Tensor& operator=(Tensor other) noexcept {
    std::swap(impl_, other.impl_);
    return *this;
  }
  ~Tensor() {
    if (impl_) detail::release(impl_);
  }

  bool defined() const { return impl_ != nullptr; }
  explicit operator bool() const { return defined(); }
  /// Same handle: the same tensor object, not equal values.
  bool is(const Tensor& other) const { return impl_ == other.impl_; }

  const Shape& shape() const;
  std::int64_t dim() const { return shape().rank(); }
  std::int64_t numel() const { return shape().numel(); }
  /// Extent of `axis`; negative axes count from the end.
  std::int64_t size(std::int64_t axis) const { return shape().size(axis); }
  DType dtype() const;
  Backend& backend() const;
  /// The kernels that work on this tensor.
  Kernels& kernels() const;
  Storage& storage() const;

  // --- Values on the host ---
  /// The value of a tensor with exactly one element, converted to T. Waits for the backend. Throws ShapeError
  /// otherwise.
  template <class T = double>
  T item() const;
  /// All values in row-major order, converted to T, wherever the tensor lives.
  template <class T>
  std::vector<T> to_vector() const;
  /// Direct access, for backends whose memory the host can see. Throws DTypeError for another T, BackendError
  /// elsewhere. `mutable_data` counts as one write: obtain it again after a tape has recorded this tensor.
  template <class T>
  std::span<const T> data() const;
  template <class T>
  std::span<T> mutable_data();

  // --- Conversions; all but detach() are recorded by the tape ---
  /// This tensor if it already has that type or lives on that backend. Moving among CPU backends shares the memory.
  Tensor to(DType dtype) const;
  Tensor to(Backend& backend) const;
  Tensor to(std::string_view backend_name) const { return to(wengert::backend(backend_name)); }
  /// A copy with memory of its own.
  Tensor clone() const;
  /// The same memory, cut from the tape. Changes through either handle are seen by both.
  Tensor detach() const;

  // --- Gradients ---
  /// True for a leaf that collects a gradient, and for a value that the present tape has recorded.
  bool requires_grad() const;
  /// Leaves only, floating types only. Returns *this.
  Tensor& set_requires_grad(bool requires_grad = true);
  /// The gradient that backward passes have added up, as a dense tensor of this shape; undefined when there is none.
  /// For a table with a row-sparse gradient this adds the rows into zeros on every call: work that follows the table.
  Tensor grad() const;
  /// The gradient as it is stored: none, dense or row-sparse.
  const Gradient& gradient() const;
  /// Replaces the gradient (shape and type are checked); an empty Gradient removes it.
  void set_gradient(Gradient gradient);
  /// Removes the gradient. A handle obtained before keeps its values.
  void zero_grad();

  /// A name for error texts; parameters of a Module get their path.
  const std::string& name() const;
  Tensor& set_name(std::string name);

  // --- In place. Each raises the version; each throws TapeError where a tape would have to record it: on a leaf that
  //     requires grad (pause with NoGrad, as optimisers do) and on a value that the tape has recorded. ---
  Tensor& fill_(double value);
  Tensor& zero_() { return fill_(0.0); }
  /// Same shape; the type is converted, another backend copied from.
  Tensor& copy_(const Tensor& from);
  /// `this += scale * other`, `other` broadcast to this shape.
  Tensor& add_(const Tensor& other, double scale = 1.0);
  Tensor& mul_(double factor);
  /// Moves this very tensor, its gradient included, to another backend: every handle sees it there.
  Tensor& move_to_(Backend& backend);

  /// Values as NumPy prints them, long axes shortened, with shape, type and backend.
  std::string str() const;
  friend std::ostream& operator<<(std::ostream& stream, const Tensor& tensor);

 private:
  friend struct detail::TensorAccess;
  explicit Tensor(detail::TensorImpl* impl) : impl_(impl) {}
  detail::TensorImpl* impl_ = nullptr;
};

// --- Making tensors. They land on `current_backend()` unless another is given. ---

/// Arbitrary content.
Tensor empty(const Shape& shape, DType dtype = DType::float32, Backend& backend = current_backend());
/// Arbitrary content, with the type and backend of `like`.
Tensor empty(const Shape& shape, const Tensor& like);
Tensor full(const Shape& shape, double value, DType dtype = DType::float32, Backend& backend = current_backend());
Tensor full(const Shape& shape, double value, const Tensor& like);
Tensor zeros(const Shape& shape, DType dtype = DType::float32, Backend& backend = current_backend());
Tensor zeros(const Shape& shape, const Tensor& like);
Tensor ones(const Shape& shape, DType dtype = DType::float32, Backend& backend = current_backend());
Tensor ones(const Shape& shape, const Tensor& like);
/// start, start + 1, ..., stop - 1.
Tensor arange(std::int64_t start, std::int64_t stop, DType dtype = DType::int64, Backend& backend = current_backend());

namespace detail {
/// Braces within braces of any depth, as `tensor` takes them.
template <class T>
struct Nested {
  Nested(T single) : value(single) {}                                            // NOLINT(google-explicit-constructor)
  Nested(std::initializer_list<Nested> several) : items(several), list(true) {}  // NOLINT(google-explicit-constructor)
  T value{};
  std::initializer_list<Nested> items{};
  bool list = false;
};
Tensor tensor_from_host(const void* values, const Shape& shape, DType dtype, Backend& backend);
template <class T>
Tensor tensor_from_braces(const Nested<T>& values, Backend& backend);
}  // namespace detail

/// A tensor from nested braces: `tensor<std::int64_t>({{15, 3, 9}, {4, 4, 0}})` has shape [2, 3].
/// Throws ShapeError when the braces are ragged.
template <class T>
Tensor tensor(const detail::Nested<T>& values, Backend& backend = current_backend()) {
  return detail::tensor_from_braces(values, backend);
}
template <class T>
Tensor tensor(std::initializer_list<detail::Nested<T>> values, Backend& backend = current_backend()) {
  return detail::tensor_from_braces(detail::Nested<T>(values), backend);
}

/// A tensor that copies `values` (row-major, as many as the shape holds, or ShapeError).
template <class T>
Tensor tensor(std::span<const T> values, const Shape& shape, Backend& backend = current_backend()) {
  if (static_cast<std::int64_t>(values.size()) != shape.numel())
    throw ShapeError("tensor: " + std::to_string(values.size()) + " values for shape " + shape.str());
  return detail::tensor_from_host(values.data(), shape, dtype_of<T>, backend);
}
template <class T>
Tensor tensor(const std::vector<T>& values, const Shape& shape, Backend& backend = current_backend()) {
  return tensor(std::span<const T>(values), shape, backend);
}

}  // namespace wengert
