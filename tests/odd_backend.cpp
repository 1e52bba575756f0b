#include "odd_backend.hpp"

#include <sys/mman.h>

#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "../framework/core/tensor_impl.hpp"
#include "wengert/backends/reference.hpp"

namespace wengert::odd {

namespace {

using detail::TensorAccess;

constexpr std::size_t space = std::size_t{32} << 30;  // of addresses: pages appear when they are written
constexpr std::size_t page = 4096;

char* reserve(int protection) {
  void* data = mmap(nullptr, space, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) throw BackendError("odd memory: cannot reserve addresses");
  return static_cast<char*>(data);
}

class OddMemory final : public Memory {
 public:
  OddMemory() : Memory("odd"), handed_out_(reserve(PROT_NONE)), real_(reserve(PROT_READ | PROT_WRITE)) {}

  bool host_visible() const override { return false; }
  void upload(void* to, const void* host, std::size_t bytes) override {
    if (bytes == 0) return;
    ++uploads_;
    std::memcpy(real(to), host, bytes);
  }
  void download(void* host, const void* from, std::size_t bytes) override {
    if (bytes == 0) return;
    ++downloads_;
    std::memcpy(host, real(from), bytes);
  }
  void copy(void* to, const void* from, std::size_t bytes) override {
    if (bytes == 0) return;
    ++copies_;
    std::memmove(real(to), real(from), bytes);
  }

  char* real(const void* address) const {
    if (!address) return nullptr;
    const std::ptrdiff_t offset = static_cast<const char*>(address) - handed_out_;
    if (offset < 0 || offset >= static_cast<std::ptrdiff_t>(space))
      throw Error("odd memory: an address of another memory");
    return real_ + offset;
  }
  Counts counts() const { return {uploads_, downloads_, copies_}; }

 protected:
  void* system_allocate(std::size_t bytes) override {
    const std::lock_guard lock(mutex_);
    std::size_t offset = used_;
    if (auto& free = free_[bytes]; !free.empty()) {
      offset = free.back();
      free.pop_back();
    } else {
      if (bytes > space - used_ - page)
        throw BackendError("odd memory: cannot allocate " + std::to_string(bytes) + " bytes");
      used_ += (bytes + page - 1) / page * page;
    }
    std::memset(real_ + offset, 0xFF, bytes);  // NaN in both floating types, -1 in the integer ones
    return handed_out_ + offset;
  }
  void system_release(void* data, std::size_t bytes) noexcept override {
    const std::lock_guard lock(mutex_);
    free_[bytes].push_back(static_cast<std::size_t>(static_cast<char*>(data) - handed_out_));
    madvise(real(data), bytes, MADV_DONTNEED);
  }

 private:
  char* handed_out_;
  char* real_;
  std::mutex mutex_;
  std::size_t used_ = page;
  std::map<std::size_t, std::vector<std::size_t>> free_;
  std::atomic<std::int64_t> uploads_{0}, downloads_{0}, copies_{0};
};

OddMemory& odd_memory() {
  static OddMemory& instance = *new OddMemory;
  return instance;
}

Tensor alias(const Tensor& tensor, const void* address) {
  auto storage = Storage::borrow(host_memory(), odd_memory().real(address), tensor.storage().bytes());
  return TensorAccess::make(std::move(storage), tensor.shape(), tensor.dtype(), reference::instance());
}

// The same values where the reference kernels can reach them.
Tensor in(const Tensor& tensor) { return tensor.defined() ? alias(tensor, tensor.storage().read()) : Tensor(); }
RowGrad in(const RowGrad& rows) { return {in(rows.ids), in(rows.rows), rows.num_rows}; }
Gradient in(const Gradient& grad) { return grad.is_rows() ? Gradient(in(grad.rows())) : Gradient(in(grad.tensor())); }
// The same for writing, which raises the version of the tensor itself.
struct Out {
  Tensor tensor;
  explicit Out(Tensor& real) : tensor(real.defined() ? alias(real, real.storage().write()) : Tensor()) {}
  operator Tensor&() { return tensor; }  // NOLINT(google-explicit-constructor)
};

template <class T>
struct OddKernels : reference::Kernels<T> {
  static constexpr std::string_view origin = "odd";
  using Base = reference::Kernels<T>;

  void fill(Tensor& out, double value) override { Base::fill(Out(out), value); }
  void iota(Tensor& out, std::int64_t start) override { Base::iota(Out(out), start); }
  void copy_strided(const Shape& extent, const Tensor& x, const StridedView& from, Tensor& out,
                    const StridedView& to) override {
    Base::copy_strided(extent, in(x), from, Out(out), to);
  }
  void unary(Unary op, const Tensor& x, double scalar, Tensor& out) override {
    Base::unary(op, in(x), scalar, Out(out));
  }
  void binary(Binary op, const Tensor& a, const Tensor& b, Tensor& out) override {
    Base::binary(op, in(a), in(b), Out(out));
  }
  void reduce(Reduce op, const Axis& axis, const Tensor& x, Tensor& out) override {
    Base::reduce(op, axis, in(x), Out(out));
  }
  void argmax(const Axis& axis, const Tensor& x, Tensor& out) override { Base::argmax(axis, in(x), Out(out)); }
  void gather_rows(const Tensor& table, const Tensor& ids, Tensor& out) override {
    Base::gather_rows(in(table), in(ids), Out(out));
  }
  RowGrad merge_rows(const Tensor& ids, const Tensor& rows, std::int64_t num_rows,
                     std::optional<std::int64_t> skip) override {
    const RowGrad merged = Base::merge_rows(in(ids), in(rows), num_rows, skip);
    RowGrad out{empty(merged.ids.shape(), ids), empty(merged.rows.shape(), rows), num_rows};
    for (const auto& [to, from] : {std::pair(&out.ids, &merged.ids), std::pair(&out.rows, &merged.rows)})
      if (from->numel() > 0) std::memcpy(real(to->storage().write()), from->storage().read(), from->storage().bytes());
    return out;
  }
  void add_rows(const RowGrad& rows, Tensor& dense) override { Base::add_rows(in(rows), Out(dense)); }
  IdRange id_range(const Tensor& ids, std::optional<std::int64_t> skip) override {
    return Base::id_range(in(ids), skip);
  }
  void keep_mask(const Dropout& dropout, std::int64_t count, Tensor& bits) override {
    Base::keep_mask(dropout, count, Out(bits));
  }
  void apply_mask(const Tensor& x, const Tensor& bits, double scale, Tensor& out) override {
    Base::apply_mask(in(x), in(bits), scale, Out(out));
  }
  void matmul(const Matmul& shape, const Tensor& a, const Tensor& b, Tensor& out) override {
    Base::matmul(shape, in(a), in(b), Out(out));
  }
  void softmax(const Tensor& x, bool log, Tensor& out) override { Base::softmax(in(x), log, Out(out)); }
  void cross_entropy(const CrossEntropy& options, const Tensor& logits, const Tensor& labels, Tensor& losses,
                     Tensor& norms) override {
    Base::cross_entropy(options, in(logits), in(labels), Out(losses), Out(norms));
  }
  void cross_entropy_backward(const CrossEntropy& options, const Tensor& grad, const Tensor& logits,
                              const Tensor& labels, const Tensor& norms, Tensor& out) override {
    Base::cross_entropy_backward(options, in(grad), in(logits), in(labels), in(norms), Out(out));
  }
  void normalize_rows(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps, Tensor& out,
                      Tensor& stats) override {
    Base::normalize_rows(in(x), in(weight), in(bias), eps, Out(out), Out(stats));
  }
  void where(const Tensor& condition, const Tensor& a, const Tensor& b, Tensor& out) override {
    Base::where(in(condition), in(a), in(b), Out(out));
  }
  void sum_squares(const Tensor& x, Tensor& out) override { Base::sum_squares(in(x), Out(out)); }
  void sgd_step(const SgdStep& step, const Gradient& grad, Tensor& param, Tensor& momentum) override {
    Base::sgd_step(step, in(grad), Out(param), Out(momentum));
  }
  void adam_step(const AdamStep& step, const Gradient& grad, Tensor& param, Tensor& m, Tensor& v) override {
    Base::adam_step(step, in(grad), Out(param), Out(m), Out(v));
  }
};

struct OddBackend final : reference::BackendWith<OddKernels> {
  OddBackend() : BackendWith("odd") {}
  Memory& memory() const override { return odd_memory(); }
};

const bool registered = [] {
  register_backend("odd", []() -> Backend& {
    static OddBackend backend;
    return backend;
  });
  return true;
}();

}  // namespace

Counts counts() { return odd_memory().counts(); }
Memory& memory() { return odd_memory(); }
void* real(const void* address) { return odd_memory().real(address); }

}  // namespace wengert::odd
