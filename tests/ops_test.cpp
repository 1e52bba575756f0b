// Every case of the shared list on the current backend.

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <string>

#include "cases.hpp"
#include "count_allocations.hpp"
#include "wengert/gradient.hpp"
#include "wengert/tape.hpp"

using namespace wengert;

namespace {

struct Outcome {
  Tensor out;
  Tensor upstream;
  std::vector<Tensor> inputs;
};

// The result of a case and, in the inputs, the gradients under an upstream that is the same for every type and backend.
Outcome evaluate(const cases::Case& which, DType dtype, Backend& backend) {
  const BackendScope scope(backend);
  Outcome outcome;
  outcome.inputs = cases::make_inputs(which, dtype);
  Tape tape;
  outcome.out = which.run(outcome.inputs);
  if (!which.differentiable) return outcome;
  const Shape& shape = outcome.out.shape();
  outcome.upstream = tensor(cases::make_values(cases::Values::normal, shape.numel(), 99), shape).to(dtype);
  tape.backward(outcome.out, {.seed = outcome.upstream});
  return outcome;
}

void check_close(const Tensor& result, const Tensor& expected, double tolerance) {
  REQUIRE(result.shape() == expected.shape());
  const std::vector<double> a = result.to_vector<double>(), b = expected.to_vector<double>();
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::abs(a[i] - b[i]) <= tolerance * (1.0 + std::abs(b[i]))) continue;
    CAPTURE(i);
    CHECK(a[i] == b[i]);
  }
}

bool same_bits(const Tensor& a, const Tensor& b) {
  if (!(a.shape() == b.shape()) || a.dtype() != b.dtype()) return false;
  const std::vector<float> x = a.to_vector<float>(), y = b.to_vector<float>();
  return x.empty() || std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
}

// The memory of a tensor, as an identity; none for empty tensors.
const void* memory_of(const Tensor& x) { return x.numel() == 0 ? nullptr : &x.storage(); }

}  // namespace

TEST_CASE("ops: float32 here against float64 on the reference backend") {
  for (const cases::Case& which : cases::all()) {
    CAPTURE(which.name);
    const Outcome here = evaluate(which, DType::float32, current_backend());
    const Outcome reference = evaluate(which, DType::float64, backend("reference"));
    CHECK(here.out.shape() == which.shape);
    CHECK(&here.out.backend() == &current_backend());
    check_close(here.out, reference.out, which.tolerance);
    if (!which.differentiable) continue;
    for (std::size_t i = 0; i < here.inputs.size(); ++i) {
      CAPTURE(i);
      const Tensor grad = here.inputs[i].grad(), expected = reference.inputs[i].grad();
      REQUIRE(grad.defined() == which.inputs[i].requires_grad);
      if (!grad.defined()) continue;
      CHECK(grad.shape() == which.inputs[i].shape);
      check_close(grad, expected, which.tolerance);
    }
  }
}

TEST_CASE("ops: two runs give the same bits, and so does one without a tape") {
  for (const cases::Case& which : cases::all()) {
    CAPTURE(which.name);
    const Outcome first = evaluate(which, DType::float32, current_backend());
    const Outcome second = evaluate(which, DType::float32, current_backend());
    CHECK(same_bits(first.out, second.out));
    for (std::size_t i = 0; i < first.inputs.size(); ++i)
      if (first.inputs[i].grad().defined()) CHECK(same_bits(first.inputs[i].grad(), second.inputs[i].grad()));
    const std::vector<Tensor> inputs = cases::make_inputs(which, DType::float32);
    const Tensor plain = which.run(inputs);
    CHECK(same_bits(first.out, plain));
  }
}

TEST_CASE("ops: operands are not written, and gradients share memory with nothing") {
  for (const cases::Case& which : cases::all()) {
    if (!which.differentiable) continue;
    CAPTURE(which.name);
    std::vector<Tensor> inputs = cases::make_inputs(which, DType::float32);
    std::vector<std::uint64_t> versions;
    versions.reserve(inputs.size());
    for (const Tensor& input : inputs) versions.push_back(input.storage().version());
    Tape tape;
    const Tensor out = which.run(inputs);
    const Tensor upstream = ones(out.shape());
    tape.backward(out, {.seed = upstream});
    std::vector<const void*> taken{memory_of(upstream), memory_of(out)};
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      CHECK(inputs[i].storage().version() == versions[i]);
      taken.push_back(memory_of(inputs[i]));
    }
    for (const Tensor& input : inputs) {
      if (!input.gradient().defined()) continue;
      const void* own = memory_of(input.gradient().values());
      if (own) CHECK(std::find(taken.begin(), taken.end(), own) == taken.end());
      taken.push_back(own);
    }
  }
}

TEST_CASE("ops: without anything that requires grad nothing is recorded") {
  for (const cases::Case& which : cases::all()) {
    CAPTURE(which.name);
    std::vector<Tensor> inputs = cases::make_inputs(which, DType::float32);
    Tape tape;
    {
      const NoGrad pause;
      which.run(inputs);
    }
    for (Tensor& input : inputs) input.set_requires_grad(false);
    which.run(inputs);
    CHECK(tape.size() == 0);
  }
}

TEST_CASE("ops: the fused input layer has the bits of embedding + embedding, dropout, forward and backward") {
  int count = 0;
  for (const cases::Case& which : cases::all()) {
    if (which.name.rfind("embed_dropout", 0) != 0 || which.inputs.size() != 3 ||
        which.name.find("offset") != std::string::npos)
      continue;
    CAPTURE(which.name);
    for (const double p : {0.0, 0.1, 0.5, 0.9, 1.0}) {
      CAPTURE(p);
      std::vector<Tensor> fused = cases::make_inputs(which, DType::float32),
                          composed = cases::make_inputs(which, DType::float32);
      const Tensor upstream =
          tensor(cases::make_values(cases::Values::normal, which.shape.numel(), 5), which.shape).to(DType::float32);
      Generator first(11), second(11);
      Tape tape;
      Tensor out, expected;
      {
        const GeneratorScope scope(first);
        out = embed_dropout(fused[0], fused[1], fused[2], {.p = p});
      }
      {
        const GeneratorScope scope(second);
        const Tensor places = arange(0, fused[2].size(-1));
        expected = dropout(embedding(composed[0], composed[2]) + embedding(composed[1], places), p);
      }
      tape.backward(out, {.seed = upstream});
      tape.backward(expected, {.seed = upstream});
      CHECK(same_bits(out, expected));
      CHECK(first.state().counter == second.state().counter);
      for (const int table : {0, 1}) {
        CAPTURE(table);
        REQUIRE(fused[table].gradient().is_rows());
        REQUIRE(composed[table].gradient().is_rows());
        CHECK(same_bits(fused[table].gradient().rows().rows, composed[table].gradient().rows().rows));
        CHECK(fused[table].gradient().rows().ids.to_vector<std::int64_t>() ==
              composed[table].gradient().rows().ids.to_vector<std::int64_t>());
      }
    }
    ++count;
  }
  CHECK(count > 15);
}

TEST_CASE("ops: positions given as (T), as (B, T) and as an offset agree bit for bit") {
  const auto run = [](const EmbedDropoutOptions& options) {
    std::vector<Tensor> tables;
    for (const Shape& shape : {Shape{5, 7}, Shape{9, 7}})
      tables.push_back(tensor(cases::make_values(cases::Values::normal, shape.numel(), 3), shape)
                           .to(DType::float32)
                           .set_requires_grad());
    const Tensor ids = tensor<std::int64_t>({{0, 4, 2}, {2, 2, 1}});
    Generator generator(3);
    const GeneratorScope scope(generator);
    Tape tape;
    tables.push_back(embed_dropout(tables[0], tables[1], ids, options));
    const Tensor upstream = tensor(cases::make_values(cases::Values::normal, 42, 8), {2, 3, 7}).to(DType::float32);
    tape.backward(tables[2], {.seed = upstream});
    return tables;
  };
  const auto a = run({.p = 0.4, .offset = 2});
  const auto b = run({.p = 0.4, .position_ids = tensor<std::int64_t>({2, 3, 4})});
  const auto c = run({.p = 0.4, .position_ids = tensor<std::int32_t>({{2, 3, 4}, {2, 3, 4}})});
  for (const auto& other : {b, c}) {
    CHECK(same_bits(a[2], other[2]));
    for (const int table : {0, 1}) CHECK(same_bits(a[table].grad(), other[table].grad()));
  }
}

TEST_CASE("promise 9: run again, no operation allocates, forward or backward") {
  if (current_backend().name() == "onednn") return;  // running a primitive allocates inside oneDNN
  for (const cases::Case& which : cases::all()) {
    if (!which.differentiable || which.inputs.size() > 8) continue;  // concat keeps its many extents on the heap
    CAPTURE(which.name);
    std::vector<Tensor> inputs = cases::make_inputs(which, DType::float32);
    const Tensor upstream = ones(which.shape);
    const auto step = [&] {
      for (Tensor& input : inputs) input.zero_grad();
      Tape tape;
      tape.backward(which.run(inputs), {.seed = upstream});
    };
    for (int warm = 0; warm < 3; ++warm) step();
    std::int64_t calls = -1;
    {
      const AllocationCount count;
      step();
      calls = count.value();
    }
    CHECK(calls == 0);
  }
}
