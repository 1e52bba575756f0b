// Matrix products: packed by panels, split among threads by rows, by columns or by batch.

#include <algorithm>

#include "parallel.hpp"
#include "table.hpp"
#include "wengert/backends/xsimd.hpp"

namespace wengert::xsimd_backend {

namespace {

// Room for packed operands, from the caching allocator. Made for all threads at once, before they start: how many of
// them run at the same time differs from call to call, and a steady step asks for the same blocks every time.
class Workspace {
 public:
  explicit Workspace(std::int64_t floats)
      : storage_(Storage::make(host_memory(), static_cast<std::size_t>(floats) * sizeof(float))) {}
  float* data() const { return static_cast<float*>(storage_->write()); }

 private:
  detail::Ref<Storage> storage_;
};

// Operands are taken in pieces of this many columns and this much depth, so that what is packed stays small and in the
// caches. The depth does not depend on threads: it decides in which order an element of c is summed.
constexpr std::int64_t piece_columns = 1024, piece_depth = 1024;

std::int64_t panels(const Table& table, std::int64_t n) { return (n + table.panel_columns - 1) / table.panel_columns; }

// Floats that packing one piece of b takes.
std::int64_t packed_b_floats(const Table& table, std::int64_t n, std::int64_t k) {
  return panels(table, std::min(n, piece_columns)) * table.panel_columns * std::min(k, piece_depth);
}

// The same product for columns [begin, end) of b and c.
Product columns(Product product, std::int64_t begin, std::int64_t end) {
  product.b += begin * product.b_col;
  product.c += begin;
  if (product.bias) product.bias += begin;
  product.n = end - begin;
  return product;
}

// The part of the product that comes from depths [begin, end); the first one takes care of beta, the last one adds the
// bias.
Product depths(Product product, std::int64_t begin, std::int64_t end) {
  if (begin > 0) product.beta = 1.0F;
  if (end < product.k) product.bias = nullptr;
  product.a += begin * product.a_col;
  product.b += begin * product.b_row;
  product.k = end - begin;
  return product;
}

// Calls body(piece) for the pieces of a product, depth by depth.
template <class Body>
void for_each_piece(const Product& product, Body body) {
  for (std::int64_t k = 0; k < product.k; k += piece_depth)
    for (std::int64_t n = 0; n < product.n; n += piece_columns)
      body(
          columns(depths(product, k, std::min(k + piece_depth, product.k)), n, std::min(n + piece_columns, product.n)));
}

void multiply_alone(const Table& table, const Product& product, float* packed_b, float* packed_a) {
  for_each_piece(product, [&](const Product& piece) {
    table.pack_b(piece, packed_b, 0, panels(table, piece.n));
    table.multiply(piece, packed_b, packed_a, 0, piece.m);
  });
}

}  // namespace

void Kernels::product(Matmul shape, const float* a, const float* b, const float* bias, float* out) {
  if (shape.batch == 0 || shape.m == 0 || shape.n == 0) return;
  if (shape.share_b && !shape.share_a && !shape.trans_a) {  // one product with more rows
    shape.m *= shape.batch;
    shape.batch = 1;
  }
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
  // A multiply-add takes about as long as half a byte moved; for few rows it is b that has to be moved.
  const std::int64_t bytes = std::max(shape.m * shape.n * shape.k / 2, shape.n * shape.k * 4);

  if (shape.m <= table.thin_rows && shape.trans_b && !shape.trans_a) {  // nothing to gain from packing
    for (std::int64_t i = 0; i < shape.batch; ++i)
      parallel(shape.n, 16, bytes,
               [&](std::int64_t begin, std::int64_t end) { table.multiply_thin(columns(of_batch(i), begin, end)); });
    return;
  }
  const bool by_batch = shape.batch > 1 && shape.batch >= threads_for(shape.batch * bytes);
  const bool by_columns = !by_batch && shape.n >= shape.m;
  const int parts = by_batch     ? parts_for(shape.batch, 1, shape.batch * bytes)
                    : by_columns ? parts_for(shape.n, table.panel_columns, bytes)
                                 : parts_for(shape.m, table.tile_rows, bytes);
  const std::int64_t floats_b = packed_b_floats(table, shape.n, shape.k);
  const bool shared = !by_batch && !by_columns;
  const Workspace room(parts * table.packed_a_floats + (shared ? 1 : parts) * floats_b);
  float* const rooms_a = room.data();
  float* const rooms_b = rooms_a + parts * table.packed_a_floats;
  const auto packed_a = [&](int part) { return rooms_a + part * table.packed_a_floats; };
  const auto packed_b = [&](int part) { return rooms_b + part * floats_b; };

  if (by_batch) {  // each thread its own products
    return parallel_parts(shape.batch, 1, parts, [&](std::int64_t begin, std::int64_t end, int part) {
      for (std::int64_t i = begin; i < end; ++i) multiply_alone(table, of_batch(i), packed_b(part), packed_a(part));
    });
  }
  for (std::int64_t i = 0; i < shape.batch; ++i) {
    const Product one = of_batch(i);
    if (by_columns) {  // each thread its own columns, packed by itself
      parallel_parts(one.n, table.panel_columns, parts, [&](std::int64_t begin, std::int64_t end, int part) {
        multiply_alone(table, columns(one, begin, end), packed_b(part), packed_a(part));
      });
      continue;
    }
    for_each_piece(one, [&](const Product& piece) {  // each thread its own rows; b is packed together
      parallel_parts(panels(table, piece.n), 1, parts,
                     [&](std::int64_t begin, std::int64_t end, int) { table.pack_b(piece, rooms_b, begin, end); });
      parallel_parts(piece.m, table.tile_rows, parts, [&](std::int64_t begin, std::int64_t end, int part) {
        table.multiply(piece, rooms_b, packed_a(part), begin, end);
      });
    });
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
