// EMB-10: kernels neither read nor write a byte outside their tensors, at any width. Every operand ends where a page
// begins that nobody may touch, or begins where such a page ends. Runs on CPU backends, optimised code included,
// and on CUDA's kernels in the emulator.

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "../framework/core/tensor_impl.hpp"
#include "same_bits.hpp"
#include "wengert/kernels.hpp"

namespace wg = wengert;
using wg::DType;
using wg::Shape;
using wg::Tensor;

namespace {

// Pages of the backend's memory, between two that trap.
class Pages {
 public:
  explicit Pages(std::size_t bytes) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    bytes_ = std::max((bytes + page - 1) / page, std::size_t{1}) * page;
    wg::Memory& memory = wg::current_backend().memory();
    if (!memory.host_visible()) {  // the emulated device puts such pages around every block of this size
      block_ = memory.allocate(bytes_);
      bytes_ = block_.capacity;
      return;
    }
    void* outer = mmap(nullptr, bytes_ + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(outer != MAP_FAILED);
    block_ = {static_cast<char*>(outer) + page, bytes_};
    REQUIRE(mprotect(block_.data, bytes_, PROT_READ | PROT_WRITE) == 0);
    std::memset(block_.data, 0xFF, bytes_);  // NaN, or -1
  }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages() {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    wg::Memory& memory = wg::current_backend().memory();
    if (memory.host_visible())
      munmap(data() - page, bytes_ + 2 * page);
    else
      memory.release(block_);
  }
  char* data() const { return static_cast<char*>(block_.data); }
  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_ = 0;
  wg::Memory::Block block_;
};

// A tensor at the end or at the beginning of such pages.
class Guarded {
 public:
  Guarded(const Shape& shape, DType dtype, bool at_end)
      : pages_(static_cast<std::size_t>(shape.numel()) * wg::size_of(dtype)) {
    const std::size_t bytes = static_cast<std::size_t>(shape.numel()) * wg::size_of(dtype);
    char* const data = at_end ? pages_.data() + pages_.bytes() - bytes : pages_.data();
    wg::Backend& backend = wg::current_backend();
    tensor = wg::detail::TensorAccess::make(wg::Storage::borrow(backend.memory(), data, bytes), shape, dtype, backend);
  }
  template <class T>
  Guarded& operator<<(const std::vector<T>& values) {
    tensor.storage().memory().upload(tensor.storage().write(), values.data(), tensor.storage().bytes());
    return *this;
  }

 private:
  Pages pages_;

 public:
  Tensor tensor;
};

bool written(const Tensor& x) {
  for (const float value : x.to_vector<float>())
    if (value != value) return false;
  return true;
}

std::vector<float> values(std::int64_t count) { return wengert::testing::random_values<float>(count, 9); }

}  // namespace

TEST_CASE("EMB-10: no access outside the tensors, at any width") {
  if (!wg::current_backend().memory().host_visible() && wg::current_backend().name() != "cuda-emulated") return;
  wg::Kernels& kernels = wg::current_backend().kernels(DType::float32);
  const std::int64_t rows = 5, batch = 2, length = 3, n = batch * length;
  for (const bool at_end : {true, false})
    for (std::int64_t d = 1; d <= 67; ++d) {
      CAPTURE(at_end);
      CAPTURE(d);
      const auto floats = [&](const Shape& shape) { return std::make_unique<Guarded>(shape, DType::float32, at_end); };
      const auto table = floats({rows, d}), places = floats({length, d}), out = floats({batch, length, d}),
                 grad = floats({batch, length, d});
      *table << values(rows * d), *places << values(length * d), *grad << values(n * d);
      Guarded ids({batch, length}, DType::int64, at_end);
      ids << std::vector<std::int64_t>{4, 0, 4, 4, 1, 4};

      kernels.gather_rows(table->tensor, ids.tensor, out->tensor);
      CHECK(written(out->tensor));
      for (const double p : {0.0, 0.3}) {
        wg::Saved saved;
        const wg::Dropout dropout{p, {1, 0, 0}};
        const auto x = floats({batch, length, d});
        kernels.embed_dropout(table->tensor, places->tensor, ids.tensor, {}, dropout, x->tensor, saved);
        CHECK(written(x->tensor));
        wg::RowGrad tokens, positions;
        kernels.embed_dropout_backward(grad->tensor, ids.tensor, {}, dropout, saved, rows, length, {}, &tokens,
                                       &positions);
        CHECK(written(tokens.rows));
        CHECK(written(positions.rows));
      }
      Guarded mask({4 * ((n * d + 127) / 128)}, DType::int32, at_end);
      kernels.keep_mask({0.4, {2, 0, 0}}, n * d, mask.tensor);
      const auto masked = floats({n, d});
      kernels.apply_mask(grad->tensor, mask.tensor, 1.5, masked->tensor);
      CHECK(written(masked->tensor));

      const auto a = floats({n, d}), row = floats({d}), sum = floats({n, d}), total = floats({d}), column = floats({n});
      *a << values(n * d), *row << values(d);
      kernels.binary(wg::Binary::add, a->tensor, row->tensor, sum->tensor);
      kernels.unary(wg::Unary::exp, a->tensor, 0.0, sum->tensor);
      kernels.reduce(wg::Reduce::sum, {1, n, d}, a->tensor, total->tensor);
      kernels.reduce(wg::Reduce::max, {n, d, 1}, a->tensor, column->tensor);
      kernels.softmax(a->tensor, false, sum->tensor);
      CHECK(written(sum->tensor));
      CHECK(written(total->tensor));
      CHECK(written(column->tensor));

      const auto weight = floats({7, d}), product = floats({n, 7}), bias = floats({7});
      *weight << values(7 * d), *bias << values(7);
      kernels.linear(a->tensor, weight->tensor, bias->tensor, product->tensor);
      CHECK(written(product->tensor));
      const auto gram = floats({d, d});
      wg::Matmul shape{.m = d, .n = d, .k = n, .trans_a = true};
      kernels.matmul(shape, a->tensor, a->tensor, gram->tensor);
      CHECK(written(gram->tensor));

      const auto normal = floats({n, d}), stats = floats({n, 2}), to_x = floats({n, d}), to_weight = floats({d}),
                 to_bias = floats({d});
      kernels.normalize_rows(a->tensor, row->tensor, row->tensor, 1e-5, normal->tensor, stats->tensor);
      kernels.normalize_rows_backward(a->tensor, a->tensor, row->tensor, stats->tensor, &to_x->tensor,
                                      &to_weight->tensor, &to_bias->tensor);
      for (const auto* x : {&normal, &stats, &to_x, &to_weight, &to_bias}) CHECK(written((*x)->tensor));
      kernels.softmax(a->tensor, true, normal->tensor);
      kernels.softmax_backward(a->tensor, normal->tensor, true, to_x->tensor);
      kernels.where(a->tensor, normal->tensor, a->tensor, sum->tensor);
      CHECK(written(to_x->tensor));
      CHECK(written(sum->tensor));

      // Heads of width d, and sequences of length d.
      for (const wg::Shape& shape_of : {Shape{1, 2, 3, d}, Shape{2, 1, d, 5}}) {
        const std::int64_t count = shape_of.numel();
        const auto q = floats(shape_of), k = floats(shape_of), v = floats(shape_of), y = floats(shape_of),
                   to_q = floats(shape_of), to_k = floats(shape_of), to_v = floats(shape_of),
                   keys = floats({shape_of[0], shape_of[2]});
        for (const auto* x : {&q, &k, &v}) **x << values(count);
        *keys << values(keys->tensor.numel());
        wg::Attention options{.scale = 0.5, .causal = true, .key_mask = keys->tensor, .dropout = {0.3, {2, 0, 0}}};
        wg::Saved saved;
        kernels.attention(options, q->tensor, k->tensor, v->tensor, y->tensor, saved);
        kernels.attention_backward(options, y->tensor, q->tensor, k->tensor, v->tensor, y->tensor, saved, to_q->tensor,
                                   to_k->tensor, to_v->tensor);
        for (const auto* x : {&y, &to_q, &to_k, &to_v}) CHECK(written((*x)->tensor));
      }

      const auto param = floats({rows, d}), m = floats({rows, d}), v = floats({rows, d}), step = floats({rows, d});
      for (const auto* x : {&param, &m, &step}) **x << values(rows * d);
      kernels.fill(v->tensor, 0.5);
      kernels.adam_step({.lr = 0.1, .weight_decay = 0.1, .decoupled = true}, step->tensor, param->tensor, m->tensor,
                        v->tensor);
      kernels.sgd_step({.lr = 0.1, .momentum = 0.9}, step->tensor, param->tensor, m->tensor);
      CHECK(written(param->tensor));
    }
}
