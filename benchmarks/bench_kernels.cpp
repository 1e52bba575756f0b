#include <iterator>

#include "bench_ops.hpp"
#include "wengert/bits.hpp"
#include "wengert/ops.hpp"
#include "wengert/random.hpp"

namespace wengert::benchmarks {

namespace {

using Body = std::function<void()>;

constexpr std::int64_t n = 8 << 20, columns = 1024, rows = n / columns;  // 32 MB a tensor
constexpr double bytes = 4.0 * n;
constexpr std::int64_t vocabulary = 50257, width = 768, batch = 4, length = 1024, tokens = batch * length;
constexpr double token_bytes = 4.0 * tokens * width, position_bytes = 4.0 * length * width;
constexpr std::int64_t heads = 12, head_width = 64, window = 256;

Tensor some(const Shape& shape) { return rand(shape).add_(full(shape, 0.5)); }
Tensor some_ids() { return randint(0, vocabulary, {tokens}); }
/// Batches of ids, one after the other, so many that their rows do not wait in a cache.
class IdBatches {
 public:
  explicit IdBatches(const Shape& shape) {
    for (Tensor& ids : batches_) ids = reshape(some_ids(), shape);
  }
  const Tensor& next() { return batches_[turn_++ % std::size(batches_)]; }

 private:
  Tensor batches_[16];
  std::size_t turn_ = 0;
};
StridedView strides(std::initializer_list<std::int64_t> values) {
  StridedView view;
  std::int64_t axis = 0;
  for (const std::int64_t stride : values) view.strides[axis++] = stride;
  return view;
}
Dropout drawing() { return {.p = 0.1, .state = {.seed = 1}}; }
Tensor mask(std::int64_t count) { return empty({bits::mask_words(count)}, DType::int32); }

/// A product of (m, k) and (k, n).
KernelBenchmark product(const char* name, std::int64_t m, std::int64_t k, std::int64_t out, bool trans_a,
                        bool trans_b) {
  return {name, Traffic::copy, 4.0 * static_cast<double>(m * k + k * out + m * out),
          [=](Kernels& kernels) -> Body {
            const Matmul shape{.m = m, .n = out, .k = k, .trans_a = trans_a, .trans_b = trans_b};
            return [&kernels, shape, a = some({m, k}), b = some({k, out}), c = some({m, out})]() mutable {
              kernels.matmul(shape, a, b, c);
            };
          },
          2.0 * static_cast<double>(m * k * out)};
}

void add_elementwise(std::vector<KernelBenchmark>& list) {
  list.push_back({"fill", Traffic::copy, bytes,
                  [](Kernels& k) -> Body { return [&k, out = some({n})]() mutable { k.fill(out, 1.5); }; }});
  list.push_back({"iota", Traffic::copy, bytes, [](Kernels& k) -> Body {
                    return [&k, out = empty({n / 2}, DType::int64)]() mutable { k.iota(out, 3); };
                  }});
  list.push_back({"copy_strided/transpose", Traffic::copy, 2 * bytes, [](Kernels& k) -> Body {
                    return [&k, x = some({rows, columns}), out = some({columns, rows})]() mutable {
                      k.copy_strided({columns, rows}, x, strides({1, columns}), out, strides({rows, 1}));
                    };
                  }});
  list.push_back({"copy_strided/cast", Traffic::copy, 3 * bytes, [](Kernels& k) -> Body {
                    return [&k, x = some({n}), out = empty({n}, DType::float64)]() mutable {
                      k.copy_strided({n}, x, strides({1}), out, strides({1}));
                    };
                  }});
  for (const auto& [name, op] : {std::pair{"unary/square", Unary::square}, std::pair{"unary/exp", Unary::exp}})
    list.push_back({name, Traffic::copy, 2 * bytes, [op = op](Kernels& k) -> Body {
                      return [&k, op, x = some({n}), out = some({n})]() mutable { k.unary(op, x, 0.0, out); };
                    }});
  list.push_back({"binary/add", Traffic::copy, 3 * bytes, [](Kernels& k) -> Body {
                    return [&k, a = some({n}), b = some({n}), out = some({n})]() mutable {
                      k.binary(Binary::add, a, b, out);
                    };
                  }});
  list.push_back({"binary/add_row", Traffic::copy, 2 * bytes, [](Kernels& k) -> Body {
                    return [&k, a = some({rows, columns}), b = some({columns}), out = some({rows, columns})]() mutable {
                      k.binary(Binary::add, a, b, out);
                    };
                  }});
  for (const auto& [name, axis] :
       {std::pair{"reduce/rows", Axis{rows, columns, 1}}, std::pair{"reduce/columns", Axis{1, rows, columns}}})
    list.push_back({name, Traffic::read, bytes, [axis = axis](Kernels& k) -> Body {
                      return [&k, axis, x = some({n}), out = some({axis.outer * axis.inner})]() mutable {
                        k.reduce(Reduce::sum, axis, x, out);
                      };
                    }});
  list.push_back({"argmax", Traffic::read, bytes, [](Kernels& k) -> Body {
                    return [&k, x = some({n}), out = empty({rows}, DType::int64)]() mutable {
                      k.argmax({rows, columns, 1}, x, out);
                    };
                  }});
  list.push_back({"sum_squares", Traffic::read, bytes, [](Kernels& k) -> Body {
                    return [&k, x = some({n}), out = empty({}, DType::float64)]() mutable { k.sum_squares(x, out); };
                  }});
  list.push_back({"where", Traffic::copy, 4 * bytes, [](Kernels& k) -> Body {
                    return [&k, x = some({n}), y = some({n}), out = some({n})]() mutable { k.where(x, x, y, out); };
                  }});
}

void add_embedding(std::vector<KernelBenchmark>& list) {
  list.push_back({"gather_rows", Traffic::copy, 2 * token_bytes, [](Kernels& k) -> Body {
                    return [&k, table = some({vocabulary, width}), ids = IdBatches({tokens}),
                            out = some({tokens, width})]() mutable { k.gather_rows(table, ids.next(), out); };
                  }});
  list.push_back(
      {"merge_rows", Traffic::copy, 2 * token_bytes, [](Kernels& k) -> Body {
         return [&k, grad = some({tokens, width}), ids = some_ids()] { k.merge_rows(ids, grad, vocabulary, {}); };
       }});
  list.push_back({"add_rows", Traffic::update, 3 * token_bytes, [](Kernels& k) -> Body {
                    return [&k, merged = k.merge_rows(some_ids(), some({tokens, width}), vocabulary, {}),
                            table = some({vocabulary, width})]() mutable { k.add_rows(merged, table); };
                  }});
  list.push_back({"id_range", Traffic::read, bytes, [](Kernels& k) -> Body {
                    return [&k, ids = randint(0, vocabulary, {n / 2})] { k.id_range(ids, {}); };
                  }});
  list.push_back({"keep_mask", Traffic::copy, bytes / 32, [](Kernels& k) -> Body {
                    return [&k, bits = mask(n)]() mutable { k.keep_mask(drawing(), n, bits); };
                  }});
  list.push_back({"apply_mask", Traffic::copy, 2 * bytes + bytes / 32, [](Kernels& k) -> Body {
                    Tensor bits = mask(n);
                    k.keep_mask(drawing(), n, bits);
                    return [&k, bits, x = some({n}), out = some({n})]() mutable { k.apply_mask(x, bits, 1.1, out); };
                  }});
  list.push_back({"dropout", Traffic::copy, 2 * bytes + bytes / 32, [](Kernels& k) -> Body {
                    return [&k, x = some({n}), out = some({n})]() mutable {
                      Saved saved;
                      k.dropout(x, drawing(), out, saved);
                    };
                  }});
  list.push_back({"dropout_backward", Traffic::copy, 2 * bytes + bytes / 32, [](Kernels& k) -> Body {
                    Tensor x = some({n}), out = some({n});
                    Saved saved;
                    k.dropout(x, drawing(), out, saved);
                    return [&k, x, out, saved]() mutable { k.dropout_backward(x, drawing(), saved, out); };
                  }});
  list.push_back({"embed_dropout", Traffic::copy, 2 * token_bytes + position_bytes, [](Kernels& k) -> Body {
                    return [&k, table = some({vocabulary, width}), places = some({length, width}),
                            ids = IdBatches({batch, length}), out = some({batch, length, width})]() mutable {
                      Saved saved;
                      k.embed_dropout(table, places, ids.next(), {}, drawing(), out, saved);
                    };
                  }});
  list.push_back({"embed_dropout_backward", Traffic::copy, 2 * token_bytes + position_bytes, [](Kernels& k) -> Body {
                    const Tensor ids = reshape(some_ids(), {batch, length});
                    Tensor out = some({batch, length, width});
                    Saved saved;
                    k.embed_dropout(some({vocabulary, width}), some({length, width}), ids, {}, drawing(), out, saved);
                    return [&k, ids, out, saved] {
                      RowGrad token, position;
                      k.embed_dropout_backward(out, ids, {}, drawing(), saved, vocabulary, length, {}, &token,
                                               &position);
                    };
                  }});
}

void add_steps(std::vector<KernelBenchmark>& list) {
  list.push_back({"sgd_step/dense", Traffic::update, 3 * bytes, [](Kernels& k) -> Body {
                    return [&k, grad = Gradient(some({n})), p = some({n}), none = Tensor()]() mutable {
                      k.sgd_step({.lr = 1e-3}, grad, p, none);
                    };
                  }});
  list.push_back({"adam_step/dense", Traffic::update, 7 * bytes, [](Kernels& k) -> Body {
                    return [&k, grad = Gradient(some({n})), p = some({n}), m = some({n}), v = some({n})]() mutable {
                      k.adam_step({.lr = 1e-3, .weight_decay = 0.01, .decoupled = true}, grad, p, m, v);
                    };
                  }});
  list.push_back({"adam_step/lazy_rows", Traffic::update, 7 * token_bytes, [](Kernels& k) -> Body {
                    const Shape shape{vocabulary, width};
                    return [&k, grad = Gradient(k.merge_rows(some_ids(), some({tokens, width}), vocabulary, {})),
                            p = some(shape), m = some(shape),
                            v = some(shape)]() mutable { k.adam_step({.lr = 1e-3, .lazy_rows = true}, grad, p, m, v); };
                  }});
}

void add_products(std::vector<KernelBenchmark>& list) {
  list.push_back(product("matmul/512", 512, 512, 512, false, false));
  list.push_back(product("matmul/1024x768x3072", 1024, 768, 3072, false, false));
  list.push_back(product("matmul/transposed_a", 768, 1024, 768, true, false));
  list.push_back(product("matmul/transposed_b", 1024, 768, 768, false, true));
  list.push_back({"linear", Traffic::copy, 2 * token_bytes + 4.0 * width * width,
                  [](Kernels& k) -> Body {
                    return [&k, x = some({tokens, width}), weight = some({width, width}), bias = some({width}),
                            out = some({tokens, width})]() mutable { k.linear(x, weight, bias, out); };
                  },
                  2.0 * tokens* width* width});
  const Shape shape{batch, heads, window, head_width};
  const double part = 4.0 * batch * heads * window * head_width,
               flops = 4.0 * batch * heads * window * window * head_width;
  struct Variant {
    const char *forward, *backward;
    Attention options;
  };
  for (const Variant& variant :
       {Variant{"attention", "attention_backward", {.scale = 0.125}},
        Variant{"attention/causal", "attention_backward/causal", {.scale = 0.125, .causal = true}},
        Variant{"attention/dropout", "attention_backward/dropout", {.scale = 0.125, .dropout = drawing()}}}) {
    const double work = variant.options.causal ? flops / 2 : flops;
    list.push_back({variant.forward, Traffic::copy, 4 * part,
                    [shape, options = variant.options](Kernels& k) -> Body {
                      return [&k, options, q = some(shape), key = some(shape), v = some(shape),
                              out = some(shape)]() mutable {
                        Saved saved;
                        k.attention(options, q, key, v, out, saved);
                      };
                    },
                    work});
    list.push_back({variant.backward, Traffic::copy, 8 * part,
                    [shape, options = variant.options](Kernels& k) -> Body {
                      const Tensor q = some(shape), key = some(shape), v = some(shape);
                      Tensor out = some(shape);
                      Saved saved;
                      k.attention(options, q, key, v, out, saved);
                      return [&k, options, q, key, v, out, saved, to_q = some(shape), to_k = some(shape),
                              to_v = some(shape)]() mutable {
                        k.attention_backward(options, out, q, key, v, out, saved, to_q, to_k, to_v);
                      };
                    },
                    2 * work});
  }
}

void add_losses(std::vector<KernelBenchmark>& list) {
  const Shape shape{rows, columns};
  for (const bool log : {false, true})
    list.push_back({log ? "softmax/log" : "softmax", Traffic::copy, 2 * bytes, [=](Kernels& k) -> Body {
                      return [&k, log, x = some(shape), out = some(shape)]() mutable { k.softmax(x, log, out); };
                    }});
  list.push_back({"softmax_backward", Traffic::copy, 3 * bytes, [=](Kernels& k) -> Body {
                    return [&k, y = some(shape), grad = some(shape), out = some(shape)]() mutable {
                      k.softmax_backward(grad, y, false, out);
                    };
                  }});
  list.push_back({"normalize_rows", Traffic::copy, 2 * bytes, [=](Kernels& k) -> Body {
                    return [&k, x = some(shape), weight = some({columns}), bias = some({columns}), out = some(shape),
                            stats = some({rows, 2})]() mutable { k.normalize_rows(x, weight, bias, 1e-5, out, stats); };
                  }});
  list.push_back({"normalize_rows_backward", Traffic::copy, 3 * bytes, [=](Kernels& k) -> Body {
                    Tensor x = some(shape), weight = some({columns}), out = some(shape), stats = some({rows, 2});
                    k.normalize_rows(x, weight, weight, 1e-5, out, stats);
                    return [&k, x, weight, stats, grad = out, to_x = some(shape), to_weight = some({columns}),
                            to_bias = some({columns})]() mutable {
                      k.normalize_rows_backward(grad, x, weight, stats, &to_x, &to_weight, &to_bias);
                    };
                  }});
  list.push_back({"cross_entropy", Traffic::read, bytes, [=](Kernels& k) -> Body {
                    return [&k, x = some(shape), labels = randint(0, columns, {rows}), losses = some({rows}),
                            norms = some({rows, 2})]() mutable { k.cross_entropy({}, x, labels, losses, norms); };
                  }});
  list.push_back({"cross_entropy_backward", Traffic::copy, 2 * bytes, [=](Kernels& k) -> Body {
                    return [&k, x = some(shape), labels = randint(0, columns, {rows}), grad = some({rows}),
                            norms = some({rows, 2}),
                            out = some(shape)]() mutable { k.cross_entropy_backward({}, grad, x, labels, norms, out); };
                  }});
}

}  // namespace

std::vector<KernelBenchmark> kernel_benchmarks() {
  std::vector<KernelBenchmark> list;
  add_elementwise(list);
  add_embedding(list);
  add_steps(list);
  add_products(list);
  add_losses(list);
  return list;
}

}  // namespace wengert::benchmarks
