// Matrix products: packed by panels, split among threads by rows, by columns or by batch.

#include <algorithm>

#include "parallel.hpp"
#include "table.hpp"
#include "wengert/backends/xsimd.hpp"

namespace wengert::xsimd_backend {

namespace {

// Room for packed operands, from the caching allocator. Made for all threads at once, before they start: how many of them
// run at the same time differs from call to call, and a steady step asks for the same blocks every time.
class Workspace {
 public:
  explicit Workspace(std::int64_t floats) : storage_(Storage::make(host_memory(), static_cast<std::size_t>(floats) * sizeof(float))) {}
  float* data() const { return static_cast<float*>(storage_->write()); }

 private:
  detail::Ref<Storage> storage_;
};

std::int64_t panels(const Table& table, std::int64_t n) { return (n + table.panel_columns - 1) / table.panel_columns; }
std::int64_t packed_b_floats(const Table& table, const Product& product) {
  return panels(table, product.n) * table.panel_columns * product.k;
}

void multiply_alone(const Table& table, const Product& product, float* packed_b, float* packed_a) {
  table.pack_b(product, packed_b, 0, panels(table, product.n));
  table.multiply(product, packed_b, packed_a, 0, product.m);
}

// The same product for columns [begin, end) of b and c.
Product columns(Product product, std::int64_t begin, std::int64_t end) {
  product.b += begin * product.b_col;
  product.c += begin;
  if (product.bias) product.bias += begin;
  product.n = end - begin;
  return product;
}

}  // namespace

void Kernels::product(const Matmul& shape, const float* a, const float* b, const float* bias, float* out) {
  if (shape.batch == 0 || shape.m == 0 || shape.n == 0) return;
  Product product{};
  product.m = shape.m, product.n = shape.n, product.k = shape.k;
  product.a_row = shape.trans_a ? 1 : shape.k, product.a_col = shape.trans_a ? shape.m : 1;
  product.b_row = shape.trans_b ? 1 : shape.n, product.b_col = shape.trans_b ? shape.k : 1;
  product.c_row = shape.n;
  product.bias = bias;
  product.alpha = static_cast<float>(shape.alpha), product.beta = static_cast<float>(shape.beta);
  const auto of_batch = [&](std::int64_t i) {
    Product one = product;
    one.a = a + (shape.share_a ? 0 : i * shape.m * shape.k);
    one.b = b + (shape.share_b ? 0 : i * shape.k * shape.n);
    one.c = out + i * shape.m * shape.n;
    return one;
  };
  // A multiply-add takes about as long as a byte and a half: some 20 of each in a nanosecond.
  const std::int64_t bytes = shape.m * shape.n * shape.k;
  const int threads = threads_for(shape.batch * bytes);
  const Workspace room_a(threads * table.packed_a_floats);
  float* const packed_a = room_a.data();
  const auto of_part = [&](int part) { return packed_a + part * table.packed_a_floats; };

  if (shape.batch >= threads && shape.batch > 1) {  // each thread its own products
    const std::int64_t floats = packed_b_floats(table, product);
    const Workspace room_b(threads * floats);
    float* const packed_b = room_b.data();
    return parallel_parts(shape.batch, 1, shape.batch * bytes, [&](std::int64_t begin, std::int64_t end, int part) {
      for (std::int64_t i = begin; i < end; ++i) multiply_alone(table, of_batch(i), packed_b + part * floats, of_part(part));
    });
  }
  const Workspace room_b(packed_b_floats(table, product));
  float* const packed_b = room_b.data();
  for (std::int64_t i = 0; i < shape.batch; ++i) {
    const Product one = of_batch(i);
    if (one.n >= one.m) {  // each thread its own columns, packed by itself
      parallel_parts(one.n, table.panel_columns, bytes, [&](std::int64_t begin, std::int64_t end, int part) {
        multiply_alone(table, columns(one, begin, end), packed_b + begin * one.k, of_part(part));
      });
    } else {  // each thread its own rows; b is packed together
      parallel(panels(table, one.n), 1, bytes, [&](std::int64_t begin, std::int64_t end) { table.pack_b(one, packed_b, begin, end); });
      parallel_parts(one.m, table.tile_rows, bytes, [&](std::int64_t begin, std::int64_t end, int part) {
        table.multiply(one, packed_b, of_part(part), begin, end);
      });
    }
  }
}

void Kernels::matmul(const Matmul& shape, const Tensor& a, const Tensor& b, Tensor& out) {
  if (shape.k == 0) {  // a sum of nothing
    if (shape.beta == 0.0) return fill(out, 0.0);
    return unary(Unary::mul_scalar, out, shape.beta, out);
  }
  product(shape, read<float>(a), read<float>(b), nullptr, write<float>(out));
}

void Kernels::linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor& out) {
  Matmul shape;
  shape.m = x.size(0), shape.n = weight.size(0), shape.k = x.size(1);
  shape.trans_b = true;
  if (shape.k == 0) return wengert::Kernels::linear(x, weight, bias, out);
  product(shape, read<float>(x), read<float>(weight), bias.defined() ? read<float>(bias) : nullptr, write<float>(out));
}

}  // namespace wengert::xsimd_backend
