// Attention in tiles: memory grows with the length of a sequence, not with its square.

#include "parallel.hpp"
#include "table.hpp"
#include "wengert/backends/xsimd.hpp"

namespace wengert::xsimd_backend {

namespace {

Attend operands(const Attention& options, const Tensor& q, const Tensor& k, const Tensor& v) {
  Attend args{};
  args.q = read<float>(q), args.k = read<float>(k), args.v = read<float>(v);
  args.key_mask = options.key_mask.defined() ? read<float>(options.key_mask) : nullptr;
  args.heads = q.size(1), args.tq = q.size(2), args.tk = k.size(2), args.d = q.size(3);
  args.scale = static_cast<float>(options.scale);
  args.causal = options.causal;
  args.drop = !options.dropout.identity();
  const wengert::Dropout& dropout = options.dropout;
  args.drawing = {dropout.state.seed, dropout.state.stream, dropout.state.counter, bits::keep_threshold(dropout.p),
                  static_cast<float>(dropout.scale())};
  return args;
}

// What the tiles cannot do: heads wider than a block of the matrix product, and nothing kept at all.
bool composed(const Table& table, const Attention& options, const Tensor& q) {
  return q.size(3) > table.widest_head || options.dropout.p == 1.0;
}

// Calls body(begin, end, room) for ranges of n pieces of work, which together take as long as moving `bytes` bytes.
template <class Body>
void with_room(std::int64_t n, std::int64_t bytes, std::int64_t floats, Body body) {
  const int parts = parts_for(n, 1, bytes);
  const auto storage = Storage::make(host_memory(), static_cast<std::size_t>(parts * floats) * sizeof(float));
  auto* const rooms = static_cast<float*>(storage->write());
  parallel_parts(n, 1, parts,
                 [&](std::int64_t begin, std::int64_t end, int part) { body(begin, end, rooms + part * floats); });
}

}  // namespace

void Kernels::attention(const Attention& options, const Tensor& q, const Tensor& k, const Tensor& v, Tensor& out,
                        Saved& saved) {
  if (composed(table, options, q)) return reference::Kernels<float>::attention(options, q, k, v, out, saved);
  Tensor norms = empty(q.shape().sub(0, 3) + 2, q);
  Attend args = operands(options, q, k, v);
  args.out = write<float>(out), args.norms = write<float>(norms);
  const std::int64_t heads = q.size(0) * args.heads, tiles = (args.tq + table.query_rows - 1) / table.query_rows;
  // A multiply-add takes about as long as half a byte moved, an exponential as 32.
  if (args.d > 0)
    with_room(heads * tiles, heads * args.tq * args.tk * (args.d + 32), table.attend_floats(args, false),
              [&](std::int64_t begin, std::int64_t end, float* room) { table.attend(args, begin, end, room); });
  saved.push(norms);
}

void Kernels::attention_backward(const Attention& options, const Tensor& grad, const Tensor& q, const Tensor& k,
                                 const Tensor& v, const Tensor& out, const Saved& saved, Tensor& grad_q, Tensor& grad_k,
                                 Tensor& grad_v) {
  if (composed(table, options, q))
    return reference::Kernels<float>::attention_backward(options, grad, q, k, v, out, saved, grad_q, grad_k, grad_v);
  Attend args = operands(options, q, k, v);
  args.norms = const_cast<float*>(read<float>(saved[0]));  // the backward only reads it
  args.grad = read<float>(grad), args.forward = read<float>(out);
  args.to_q = write<float>(grad_q), args.to_k = write<float>(grad_k), args.to_v = write<float>(grad_v);
  const std::int64_t heads = q.size(0) * args.heads;
  if (args.d > 0)
    with_room(
        heads, heads * args.tq * args.tk * (5 * args.d / 2 + 32), table.attend_floats(args, true),
        [&](std::int64_t begin, std::int64_t end, float* room) { table.attend_backward(args, begin, end, room); });
}

}  // namespace wengert::xsimd_backend
