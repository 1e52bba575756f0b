// What operations refuse: the full text, and that nothing has changed.

#include <doctest/doctest.h>

#include <limits>
#include <string>

#include "wengert/backend.hpp"
#include "wengert/gradient.hpp"
#include "wengert/io.hpp"
#include "wengert/layers.hpp"
#include "wengert/ops.hpp"
#include "wengert/random.hpp"
#include "wengert/tape.hpp"

using namespace wengert;

namespace {

// Fails unless the enclosed calls leave the generator, the tape and the gradient of `leaf` as they were.
class NothingChanges {
 public:
  NothingChanges() : counter_(default_generator().state().counter) { leaf.set_gradient(tensor<float>({5, 6, 7})); }
  NothingChanges(const NothingChanges&) = delete;
  NothingChanges& operator=(const NothingChanges&) = delete;
  ~NothingChanges() {
    CHECK(default_generator().state().counter == counter_);
    CHECK(tape_.size() == 0);
    CHECK(leaf.to_vector<float>() == std::vector<float>{1, 2, 3});
    CHECK(leaf.grad().to_vector<float>() == std::vector<float>{5, 6, 7});
  }
  Tensor leaf = tensor<float>({1, 2, 3}).set_requires_grad();

 private:
  Tape tape_;
  std::uint64_t counter_;
};

}  // namespace

TEST_CASE("errors: shapes that do not fit") {
  const NothingChanges guard;
  const Tensor a = zeros({2, 3}).set_requires_grad(), b = zeros({4, 5}).set_requires_grad();
  CHECK_THROWS_WITH_AS(matmul(a, b), "matmul: shapes [2, 3] and [4, 5] do not fit: 3 != 4", ShapeError);
  CHECK_THROWS_WITH_AS(matmul(a, zeros({})), "matmul: shapes [2, 3] and [] do not fit: both need at least one axis",
                       ShapeError);
  CHECK_THROWS_WITH_AS(matmul(zeros({2, 4, 3}), zeros({5, 3, 4})),
                       "matmul: shapes [2, 4, 3] and [5, 3, 4] do not fit: leading axes [2] and [5] do not broadcast",
                       ShapeError);
  CHECK_THROWS_WITH_AS(add(a, b), "add: shapes [2, 3] and [4, 5] do not broadcast: 3 against 5", ShapeError);
  CHECK_THROWS_AS(sub(a, b), ShapeError);
  CHECK_THROWS_AS(mul(a, b), ShapeError);
  CHECK_THROWS_AS(div(a, b), ShapeError);
  CHECK_THROWS_WITH_AS(linear(a, b), "linear: input [2, 3] and weight [4, 5] do not fit: the last axis must be 5",
                       ShapeError);
  CHECK_THROWS_WITH_AS(linear(a, zeros({4, 3}), zeros({3})),
                       "linear: bias [3] and weight [4, 3] do not fit: the bias must be [4]", ShapeError);
  CHECK_THROWS_WITH_AS(linear(a, zeros({3})), "linear: the weight must have shape (out, in), got [3]", ShapeError);
  CHECK_THROWS_WITH_AS(mse_loss(a, zeros({3})), "mse_loss: shapes [2, 3] and [3] must be equal", ShapeError);
  CHECK_THROWS_WITH_AS(concat({a, b}), "concat: shapes [2, 3] and [4, 5] do not fit: they may differ only along axis 0",
                       ShapeError);
  CHECK_THROWS_WITH_AS(concat(std::span<const Tensor>{}), "concat: no tensors", ShapeError);
  CHECK_THROWS_WITH_AS(broadcast_to(a, {3, 2}), "broadcast_to: shapes [2, 3] and [3, 2] do not broadcast: 3 against 2",
                       ShapeError);
  CHECK_THROWS_WITH_AS(broadcast_to(a, {1, 3}), "broadcast_to: shape [2, 3] does not broadcast to [1, 3]", ShapeError);
  CHECK_THROWS_WITH_AS(cross_entropy(a, zeros({3}, DType::int64)),
                       "cross_entropy: logits [2, 3] need labels of shape [2], got [3]", ShapeError);
  CHECK_THROWS_WITH_AS(cross_entropy(zeros({}), zeros({}, DType::int64)),
                       "cross_entropy: logits must have shape (..., C), got []", ShapeError);
  const Tensor labels = zeros({2}, DType::int64);
  CHECK_THROWS_WITH_AS(linear_cross_entropy(a, b, labels),
                       "linear_cross_entropy: input [2, 3] and weight [4, 5] do not fit: the last axis must be 5",
                       ShapeError);
  CHECK_THROWS_WITH_AS(linear_cross_entropy(a, zeros({4, 3}), zeros({3}, DType::int64)),
                       "linear_cross_entropy: input [2, 3] needs labels of shape [2], got [3]", ShapeError);
  CHECK_THROWS_WITH_AS(linear_cross_entropy(a, zeros({3}), labels),
                       "linear_cross_entropy: the weight must have shape (classes, in), got [3]", ShapeError);
  CHECK_THROWS_WITH_AS(linear_cross_entropy(a, zeros({4, 3}), tensor<std::int64_t>({0, 4})),
                       "linear_cross_entropy: label 4 at [1] is outside [0, 4)", IndexError);
  CHECK_THROWS_WITH_AS(linear_cross_entropy(a, zeros({4, 3}), labels, {.label_smoothing = 1.5}),
                       "linear_cross_entropy: label_smoothing 1.5 is outside [0, 1]", ValueError);
}

TEST_CASE("errors: reshape, permute and axes") {
  const NothingChanges guard;
  const Tensor a = zeros({2, 3}).set_requires_grad();
  CHECK_THROWS_WITH_AS(reshape(a, {4, 2}),
                       "reshape: shape [2, 3] of 6 elements does not fit shape [4, 2] of 8 elements", ShapeError);
  CHECK_THROWS_WITH_AS(reshape(a, {-1, 4}), "reshape: shape [2, 3] of 6 elements has no extent for -1 in [-1, 4]",
                       ShapeError);
  CHECK_THROWS_WITH_AS(reshape(a, {-1, -1}), "reshape: only one extent may be -1", ShapeError);
  CHECK_THROWS_WITH_AS(reshape(zeros({0, 3}), {-1, 0}),
                       "reshape: shape [0, 3] of 0 elements has no extent for -1 in [-1, 0]", ShapeError);
  CHECK_THROWS_AS(reshape(a, {-2, 3}), ShapeError);
  CHECK_THROWS_WITH_AS(permute(a, {0, 0}), "permute: axis 0 of shape [2, 3] is named twice", ShapeError);
  CHECK_THROWS_WITH_AS(permute(a, {0}), "permute: 1 axes given for shape [2, 3]", ShapeError);
  CHECK_THROWS_WITH_AS(permute(a, {0, 2}), "permute: shape [2, 3] has no axis 2", ShapeError);
  CHECK_THROWS_WITH_AS(transpose(a, 0, -3), "transpose: shape [2, 3] has no axis -3", ShapeError);
  CHECK_THROWS_WITH_AS(slice(a, 2, 0), "slice: shape [2, 3] has no axis 2", ShapeError);
  CHECK_THROWS_WITH_AS(sum(a, 2), "sum: shape [2, 3] has no axis 2", ShapeError);
  CHECK_THROWS_WITH_AS(mean(zeros({}), 0), "mean: shape [] has no axis 0", ShapeError);
  CHECK_THROWS_WITH_AS(softmax(a, 5), "softmax: shape [2, 3] has no axis 5", ShapeError);
  CHECK_THROWS_WITH_AS(max(zeros({3, 0}), 1), "max: shape [3, 0] has nothing to choose from", ShapeError);
  CHECK_THROWS_WITH_AS(argmax(zeros({0})), "argmax: shape [0] has nothing to choose from", ShapeError);
}

TEST_CASE("errors: types") {
  const NothingChanges guard;
  const Tensor a = zeros({2}).set_requires_grad(), integers = zeros({2}, DType::int64);
  CHECK_THROWS_WITH_AS(add(a, integers), "add: operands must be float32 or float64, got int64", DTypeError);
  CHECK_THROWS_WITH_AS(add(a, zeros({2}, DType::float64)),
                       "add: operands have two types, float32 and float64; convert one with to()", DTypeError);
  CHECK_THROWS_WITH_AS(exp(integers), "exp: operands must be float32 or float64, got int64", DTypeError);
  CHECK_THROWS_AS(sum(integers), DTypeError);
  CHECK_THROWS_AS(argmax(integers), DTypeError);
  CHECK_THROWS_AS(dropout(integers, 0.5), DTypeError);
  CHECK_THROWS_AS(matmul(a, zeros({2}, DType::float64)), DTypeError);
  CHECK_THROWS_AS(embedding(integers, integers), DTypeError);
  CHECK_THROWS_WITH_AS(cross_entropy(zeros({2, 3}), zeros({2})),
                       "cross_entropy: labels must be int32 or int64, got float32", DTypeError);
  CHECK_THROWS_WITH_AS(concat({a, integers}), "concat: two types, float32 and int64; convert one with to()",
                       DTypeError);
}

TEST_CASE("errors: undefined operands") {
  const Tensor none;
  CHECK_THROWS_WITH_AS(add(zeros({1}), none), "add: operand 1 is undefined", Error);
  CHECK_THROWS_AS(exp(none), Error);
  CHECK_THROWS_AS(embedding(none, zeros({1}, DType::int64)), Error);
  CHECK_THROWS_AS(embedding(zeros({1, 1}), none), Error);
  CHECK_THROWS_AS(reshape(none, {1}), Error);
  CHECK_THROWS_AS(concat({none}), Error);
  CHECK_THROWS_AS(linear(zeros({1, 1}), none), Error);
  CHECK_THROWS_AS(cross_entropy(zeros({1, 1}), none), Error);
}

TEST_CASE("errors: undefined tensors, by the name of what met them") {
  Tensor none, one = zeros({1});
  CHECK_THROWS_WITH_AS(none.shape(), "shape: the tensor is undefined", Error);
  CHECK_THROWS_WITH_AS(none.item(), "item: the tensor is undefined", Error);
  CHECK_THROWS_WITH_AS(none.to_vector<float>(), "to_vector: the tensor is undefined", Error);
  CHECK_THROWS_WITH_AS(none.to(DType::float64), "to: the tensor is undefined", Error);
  CHECK_THROWS_WITH_AS(none.clone(), "clone: the tensor is undefined", Error);
  CHECK_THROWS_WITH_AS(none.detach(), "detach: the tensor is undefined", Error);
  CHECK_THROWS_WITH_AS(none.set_requires_grad(), "set_requires_grad: the tensor is undefined", Error);
  CHECK_THROWS_WITH_AS(none.grad(), "gradient: the tensor is undefined", Error);
  CHECK_THROWS_WITH_AS(none.fill_(1), "fill_: the tensor is undefined", Error);
  CHECK_THROWS_WITH_AS(one.copy_(none), "copy_: the tensor is undefined", Error);
  CHECK_THROWS_WITH_AS(io::save_npy(none, "none.npy"), "npy: cannot write \"none.npy\": the tensor is undefined",
                       Error);
  {
    Tape tape;
    CHECK_THROWS_WITH_AS(tape.backward(none), "backward: the tensor is undefined", Error);
  }
  const layers::MultiHeadAttention attention({.embed_dim = 4, .num_heads = 2});
  const Tensor x = zeros({1, 2, 4});
  CHECK_THROWS_WITH_AS(attention(none), "MultiHeadAttention: x is undefined", Error);
  CHECK_THROWS_WITH_AS(attention(none, x, x), "MultiHeadAttention: query is undefined", Error);
  CHECK_THROWS_WITH_AS(attention(x, x, none), "MultiHeadAttention: value is undefined", Error);
  const layers::TransformerEmbedding embed({.vocab_size = 2, .max_seq_len = 2, .embed_dim = 2});
  CHECK_THROWS_WITH_AS(embed(none), "TransformerEmbedding: ids is undefined", Error);
  const layers::BertEmbedding bert({.vocab_size = 2, .max_seq_len = 2, .embed_dim = 2});
  CHECK_THROWS_WITH_AS(bert(none), "BertEmbedding: ids is undefined", Error);
}

TEST_CASE("errors: operands on two backends") {
  const NothingChanges guard;
  // Another backend than the current one, whichever that is.
  std::string other;
  for (const std::string& name : backend_names())
    if (name != current_backend().name() && backend_available(name)) other = name;
  if (other.empty()) return;
  const std::string here(current_backend().name());
  const Tensor a = zeros({2, 2}).set_requires_grad(), there = zeros({2, 2}).to(other);
  const Tensor ids_there = zeros({2}, DType::int64).to(other);
  const auto text = [&](const char* op) {
    return std::string(op) + ": the operands live on two backends, " + here + " and " + other + "; move one with to()";
  };
  CHECK_THROWS_WITH_AS(add(a, there), text("add").c_str(), BackendError);
  CHECK_THROWS_WITH_AS(matmul(a, there), text("matmul").c_str(), BackendError);
  CHECK_THROWS_WITH_AS(concat({a, there}), text("concat").c_str(), BackendError);
  CHECK_THROWS_WITH_AS(embedding(a, ids_there), text("embedding").c_str(), BackendError);
  CHECK_THROWS_WITH_AS(embed_dropout(a, a, ids_there, {.p = 0.5}), text("embed_dropout").c_str(), BackendError);
  CHECK_THROWS_WITH_AS(embed_dropout(a, there, zeros({2}, DType::int64), {.p = 0.5}), text("embed_dropout").c_str(),
                       BackendError);
  CHECK_THROWS_WITH_AS(embed_dropout(a, a, zeros({2}, DType::int64), {.p = 0.5, .position_ids = ids_there}),
                       text("embed_dropout").c_str(), BackendError);
  CHECK_THROWS_WITH_AS(cross_entropy(a, ids_there), text("cross_entropy").c_str(), BackendError);
  CHECK_THROWS_WITH_AS(linear(a, a, zeros({2}).to(other)), text("linear").c_str(), BackendError);
}

TEST_CASE("errors: embed_dropout's arguments") {
  const NothingChanges guard;
  const Tensor tokens = zeros({5, 3}).set_requires_grad(), positions = zeros({4, 3}).set_requires_grad();
  const Tensor ids = zeros({2, 3}, DType::int64);
  CHECK_THROWS_WITH_AS(embed_dropout(tokens, zeros({4, 2}), ids),
                       "embed_dropout: tables [5, 3] and [4, 2] do not fit: 3 != 2", ShapeError);
  CHECK_THROWS_WITH_AS(embed_dropout(tokens, zeros({3}), ids),
                       "embed_dropout: the position table must have shape (L, d), got [3]", ShapeError);
  CHECK_THROWS_WITH_AS(embed_dropout(zeros({3}), positions, ids),
                       "embed_dropout: the token table must have shape (V, d), got [3]", ShapeError);
  CHECK_THROWS_WITH_AS(embed_dropout(tokens, positions, zeros({1, 2, 3}, DType::int64)),
                       "embed_dropout: ids must have shape (T) or (B, T), got [1, 2, 3]", ShapeError);
  CHECK_THROWS_WITH_AS(embed_dropout(tokens, positions, zeros({}, DType::int64)),
                       "embed_dropout: ids must have shape (T) or (B, T), got []", ShapeError);
  CHECK_THROWS_WITH_AS(
      embed_dropout(tokens, positions, ids, {.position_ids = zeros({2}, DType::int64)}),
      "embed_dropout: position_ids of shape [2] do not fit ids of shape [2, 3]: allowed are [3] and [2, 3]",
      ShapeError);
  CHECK_THROWS_WITH_AS(embed_dropout(tokens, positions, ids, {.position_ids = zeros({3})}),
                       "embed_dropout: position ids must be int32 or int64, got float32", DTypeError);
  CHECK_THROWS_WITH_AS(embed_dropout(tokens, positions, ids, {.p = 0.5, .padding_idx = 5}),
                       "embed_dropout: padding_idx 5 is outside [0, 5)", IndexError);
  CHECK_THROWS_WITH_AS(embedding(tokens, ids, {.padding_idx = -1}), "embedding: padding_idx -1 is outside [0, 5)",
                       IndexError);
  CHECK_THROWS_WITH_AS(embedding(zeros({3}), ids), "embedding: the table must have shape (rows, d), got [3]",
                       ShapeError);
}

TEST_CASE("errors: random operations draw nothing when they fail, and a full tape refuses before the draw") {
  const NothingChanges guard;
  CHECK_THROWS_AS(dropout(guard.leaf, 2.0), ValueError);
  CHECK_THROWS_AS(embed_dropout(zeros({3, 2}), zeros({3, 2}), tensor<std::int64_t>({1, 3}), {.p = 0.5}), IndexError);
  CHECK_THROWS_AS(embed_dropout(zeros({3, 2}), zeros({3, 2}), tensor<std::int64_t>({0, 0, 0, 0}), {.p = 0.5}),
                  IndexError);
}

TEST_CASE("errors: a value of an outer tape is refused before anything is drawn") {
  const Tensor x = ones({300}).set_requires_grad();
  Tape outer;
  const Tensor y = x * 2.0;
  const std::uint64_t before = default_generator().state().counter;
  Tape inner;
  CHECK_THROWS_AS(dropout(y, 0.5), TapeError);
  CHECK(default_generator().state().counter == before);
  CHECK(inner.size() == 0);
}
