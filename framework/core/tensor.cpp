#include "wengert/tensor.hpp"

#include <fmt/format.h>

#include "tensor_impl.hpp"
#include "wengert/kernels.hpp"
#include "wengert/tape.hpp"

namespace wengert {

using detail::TensorAccess;
using detail::TensorImpl;

namespace detail {

void retain(TensorImpl* impl) noexcept { impl->references.fetch_add(1, std::memory_order_relaxed); }
void release(TensorImpl* impl) noexcept {
  if (impl->references.fetch_sub(1, std::memory_order_acq_rel) == 1) TensorImpl::destroy(impl);
}

namespace {

// Values of one type as another: what C++ converts.
template <class To>
void convert(const void* from, DType dtype, std::int64_t count, To* to) {
  const auto loop = [&](const auto* values) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<To>(values[i]);
  };
  switch (dtype) {
    case DType::float32: return loop(static_cast<const float*>(from));
    case DType::float64: return loop(static_cast<const double*>(from));
    case DType::int32: return loop(static_cast<const std::int32_t*>(from));
    case DType::int64: return loop(static_cast<const std::int64_t*>(from));
  }
}

void require_dtype(const char* access, DType wanted, DType dtype) {
  if (wanted != dtype)
    throw DTypeError(fmt::format("{}: the tensor is {}, not {}", access, name_of(dtype), name_of(wanted)));
}

void require_host(const char* access, const Tensor& tensor) {
  if (!tensor.storage().memory().host_visible())
    throw BackendError(fmt::format("{}: the host cannot see the memory of backend {}; copy with to_vector or to",
                                   access, tensor.backend().name()));
}

}  // namespace
}  // namespace detail

const Shape& Tensor::shape() const { return TensorAccess::impl(*this, "shape").shape; }
DType Tensor::dtype() const { return TensorAccess::impl(*this, "dtype").dtype; }
Backend& Tensor::backend() const { return *TensorAccess::impl(*this, "backend").backend; }
Kernels& Tensor::kernels() const { return backend().kernels(dtype()); }
Storage& Tensor::storage() const { return *TensorAccess::impl(*this, "storage").storage; }

template <class T>
T Tensor::item() const {
  TensorAccess::impl(*this, "item");
  if (numel() != 1) throw ShapeError(fmt::format("item: the tensor has shape {}, not one element", shape().str()));
  alignas(8) unsigned char value[8];
  storage().memory().download(value, storage().read(), size_of(dtype()));
  T out{};
  detail::convert(value, dtype(), 1, &out);
  return out;
}

template <class T>
std::vector<T> Tensor::to_vector() const {
  TensorAccess::impl(*this, "to_vector");
  std::vector<T> out(static_cast<std::size_t>(numel()));
  if (dtype_of<T> == dtype()) {
    storage().memory().download(out.data(), storage().read(), storage().bytes());
  } else {
    std::vector<std::int64_t> raw((storage().bytes() + 7) / 8);  // aligned for every type
    storage().memory().download(raw.data(), storage().read(), storage().bytes());
    detail::convert(raw.data(), dtype(), numel(), out.data());
  }
  return out;
}

template <class T>
std::span<const T> Tensor::data() const {
  TensorAccess::impl(*this, "data");
  detail::require_dtype("data", dtype_of<T>, dtype());
  detail::require_host("data", *this);
  return {static_cast<const T*>(storage().read()), static_cast<std::size_t>(numel())};
}

template <class T>
std::span<T> Tensor::mutable_data() {
  TensorAccess::impl(*this, "mutable_data");
  detail::require_dtype("mutable_data", dtype_of<T>, dtype());
  detail::require_host("mutable_data", *this);
  return {static_cast<T*>(storage().write()), static_cast<std::size_t>(numel())};
}

template <class T>
const T* read(const Tensor& tensor) {
  detail::require_dtype("kernel", dtype_of<T>, tensor.dtype());
  return static_cast<const T*>(tensor.storage().read());
}

template <class T>
T* write(Tensor& tensor) {
  detail::require_dtype("kernel", dtype_of<T>, tensor.dtype());
  return static_cast<T*>(tensor.storage().write());
}

#define WENGERT_INSTANTIATE(T)                       \
  template T Tensor::item<T>() const;                \
  template std::vector<T> Tensor::to_vector() const; \
  template std::span<const T> Tensor::data() const;  \
  template std::span<T> Tensor::mutable_data();      \
  template const T* read<T>(const Tensor&);          \
  template T* write<T>(Tensor&);
WENGERT_INSTANTIATE(float)
WENGERT_INSTANTIATE(double)
WENGERT_INSTANTIATE(std::int32_t)
WENGERT_INSTANTIATE(std::int64_t)
#undef WENGERT_INSTANTIATE

// --- Conversions ---

namespace {

// out = in, converted; both contiguous, of one size, on one backend.
void copy_values(const Tensor& in, Tensor& out) {
  if (in.dtype() == out.dtype()) {
    in.storage().memory().copy(out.storage().write(), in.storage().read(), in.storage().bytes());
  } else {
    StridedView contiguous;
    contiguous.strides[0] = 1;
    out.kernels().copy_strided({in.numel()}, in, contiguous, out, contiguous);
  }
}

// The values of `in` in memory that `backend` can work on: shared if it can, else a copy.
detail::Ref<Storage> storage_on(const Tensor& in, Backend& backend) {
  Memory& from = in.storage().memory();
  Memory& to = backend.memory();
  if (&from == &to) return TensorAccess::impl(in).storage;
  auto storage = Storage::make(to, in.storage().bytes());
  if (to.host_visible()) {
    from.download(storage->write(), in.storage().read(), in.storage().bytes());
  } else if (from.host_visible()) {
    to.upload(storage->write(), in.storage().read(), in.storage().bytes());
  } else {
    const auto staging = Storage::make(host_memory(), in.storage().bytes());
    from.download(staging->write(), in.storage().read(), in.storage().bytes());
    to.upload(storage->write(), staging->read(), in.storage().bytes());
  }
  if (in.storage().id_range()) storage->set_id_range(*in.storage().id_range());
  return storage;
}

}  // namespace

Tensor Tensor::to(DType dtype) const {
  TensorAccess::impl(*this, "to");
  if (dtype == this->dtype()) return *this;
  Tensor out = empty(shape(), dtype, backend());
  copy_values(*this, out);
  if (!is_floating(dtype) || !needs_record("to", {*this})) return out;
  return record("to", out, {*this}, {},
                [from = this->dtype()](BackwardStep& step) { step.give(0, step.grad().to(from)); });
}

Tensor Tensor::to(Backend& backend) const {
  TensorAccess::impl(*this, "to");
  if (&backend == &this->backend()) return *this;
  Tensor out = TensorAccess::make(storage_on(*this, backend), shape(), dtype(), backend);
  if (!needs_record("to", {*this})) return out;
  return record("to", out, {*this}, {},
                [from = &this->backend()](BackwardStep& step) { step.give(0, step.grad().to(*from)); });
}

Tensor Tensor::clone() const {
  TensorAccess::impl(*this, "clone");
  Tensor out = empty(shape(), *this);
  copy_values(*this, out);
  if (!needs_record("clone", {*this})) return out;
  return record("clone", out, {*this}, {}, [](BackwardStep& step) { step.give(0, step.grad()); });
}

Tensor Tensor::detach() const { return TensorAccess::alias(*this, TensorAccess::impl(*this, "detach").shape); }

// --- Gradients ---

bool Tensor::requires_grad() const { return impl_ && (impl_->requires_grad || detail::recorded_now(*impl_)); }

Tensor& Tensor::set_requires_grad(bool requires_grad) {
  TensorImpl& impl = TensorAccess::impl(*this, "set_requires_grad");
  if (requires_grad && !is_floating(impl.dtype))
    throw DTypeError(fmt::format("set_requires_grad: only floating types have gradients, not {}", name_of(impl.dtype)));
  if (requires_grad && detail::recorded_now(impl))
    throw TapeError(
        "set_requires_grad: the tensor is a result that the tape has recorded, not a leaf; detach() it first");
  impl.requires_grad = requires_grad;
  if (requires_grad) impl.leaf_state();
  return *this;
}

const Gradient& Tensor::gradient() const {
  static const Gradient none;
  const TensorImpl& impl = TensorAccess::impl(*this, "gradient");
  return impl.leaf ? impl.leaf->gradient : none;
}

Tensor Tensor::grad() const { return gradient().defined() ? gradient().dense() : Tensor(); }

void Tensor::set_gradient(Gradient gradient) {
  TensorImpl& impl = TensorAccess::impl(*this, "set_gradient");
  if (gradient.defined()) {
    const Tensor& values = gradient.values();
    if (!(gradient.shape() == impl.shape))
      throw ShapeError(fmt::format("set_gradient: a gradient of shape {} for a tensor of shape {}",
                                   gradient.shape().str(), impl.shape.str()));
    if (values.dtype() != impl.dtype)
      throw DTypeError(
          fmt::format("set_gradient: a {} gradient for a {} tensor", name_of(values.dtype()), name_of(impl.dtype)));
    if (&values.backend() != impl.backend)
      throw BackendError(fmt::format("set_gradient: a gradient on {} for a tensor on {}", values.backend().name(),
                                     impl.backend->name()));
    if (gradient.is_rows()) gradient.rows().check("set_gradient");
    gradient.own();
  }
  impl.leaf_state().gradient = std::move(gradient);
}

void Tensor::zero_grad() {
  if (TensorImpl& impl = TensorAccess::impl(*this, "zero_grad"); impl.leaf) impl.leaf->gradient = {};
}

const std::string& Tensor::name() const {
  static const std::string none;
  const TensorImpl& impl = TensorAccess::impl(*this, "name");
  return impl.leaf ? impl.leaf->name : none;
}

Tensor& Tensor::set_name(std::string name) {
  TensorAccess::impl(*this, "set_name").leaf_state().name = std::move(name);
  return *this;
}

// --- In place ---

namespace {

void require_unrecorded(const char* op, const Tensor& tensor) {
  TensorAccess::impl(tensor, op);
  if (recording() && tensor.requires_grad())
    throw TapeError(
        fmt::format("{}: {} on a tape cannot be changed in place; pause recording with NoGrad", op,
                    TensorAccess::impl(tensor).requires_grad ? "a leaf that requires grad" : "a recorded value"));
}

// In-place operations are not recorded: a gradient that should flow through one would be lost.
void require_constant(const char* op, const Tensor& operand) {
  TensorAccess::impl(operand, op);
  if (recording() && operand.requires_grad())
    throw TapeError(
        fmt::format("{}: the operand requires grad, and in-place operations are not recorded; use an operation that "
                    "returns a new tensor, or detach() the operand",
                    op));
}

}  // namespace

Tensor& Tensor::fill_(double value) {
  require_unrecorded("fill_", *this);
  kernels().fill(*this, value);
  return *this;
}

Tensor& Tensor::copy_(const Tensor& from) {
  require_unrecorded("copy_", *this);
  require_constant("copy_", from);
  if (!(from.shape() == shape()))
    throw ShapeError(fmt::format("copy_: from shape {} to shape {}", from.shape().str(), shape().str()));
  copy_values(from.detach().to(backend()), *this);
  return *this;
}

Tensor& Tensor::add_(const Tensor& other, double scale) {
  require_unrecorded("add_", *this);
  require_constant("add_", other);
  if (&other.backend() != &backend())
    throw BackendError(fmt::format("add_: operands on backends {} and {}; move one with to()", backend().name(),
                                   other.backend().name()));
  if (other.dtype() != dtype() || !is_floating(dtype()))
    throw DTypeError(
        fmt::format("add_: {} to {}; both must have one floating type", name_of(other.dtype()), name_of(dtype())));
  if (!(broadcast("add_", shape(), other.shape()) == shape()))
    throw ShapeError(fmt::format("add_: shape {} does not broadcast to {}", other.shape().str(), shape().str()));
  if (scale == 1.0) {
    kernels().binary(Binary::add, *this, other, *this);
  } else {
    Tensor scaled = empty(other.shape(), other);
    kernels().unary(Unary::mul_scalar, other, scale, scaled);
    kernels().binary(Binary::add, *this, scaled, *this);
  }
  return *this;
}

Tensor& Tensor::mul_(double factor) {
  require_unrecorded("mul_", *this);
  if (!is_floating(dtype())) throw DTypeError(fmt::format("mul_: needs a floating type, not {}", name_of(dtype())));
  kernels().unary(Unary::mul_scalar, *this, factor, *this);
  return *this;
}

Tensor& Tensor::move_to_(Backend& backend) {
  TensorImpl& impl = TensorAccess::impl(*this, "move_to_");
  if (impl.backend == &backend) return *this;
  if (detail::recorded_now(impl))
    throw TapeError("move_to_: a value that a tape has recorded stays where it is; to() gives a moved one");
  auto moved = [&backend](const Tensor& tensor) { return tensor.defined() ? tensor.detach().to(backend) : Tensor(); };
  Gradient gradient;
  if (impl.leaf && impl.leaf->gradient.is_dense()) gradient = moved(impl.leaf->gradient.tensor());
  if (impl.leaf && impl.leaf->gradient.is_rows()) {
    const RowGrad& rows = impl.leaf->gradient.rows();
    gradient = RowGrad{moved(rows.ids), moved(rows.rows), rows.num_rows};
  }
  impl.storage = storage_on(*this, backend);  // what a tape has saved stays where it was
  impl.backend = &backend;
  if (gradient.defined()) impl.leaf->gradient = std::move(gradient);
  return *this;
}

}  // namespace wengert
