// Derivatives of every case of the shared list against finite differences, in float64.

#include "wengert/gradcheck.hpp"

#include <doctest/doctest.h>

#include "cases.hpp"
#include "wengert/gradient.hpp"
#include "wengert/tape.hpp"

using namespace wengert;

TEST_CASE("gradcheck: every case of the shared list") {
  bool has_float64 = true;
  try {
    current_backend().kernels(DType::float64);
  } catch (const DTypeError&) {
    has_float64 = false;  // its derivatives are the same code; the values are compared in ops_test.cpp
  }
  if (!has_float64) return;
  int count = 0;
  for (const cases::Case& which : cases::all()) {
    if (!which.differentiable || !which.finite_differences) continue;
    CAPTURE(which.name);
    const GradcheckResult result = gradcheck(which.run, cases::make_inputs(which, DType::float64), which.gradcheck);
    CHECK_MESSAGE(result.ok, result.message);
    ++count;
  }
  CHECK(count > 400);
}

TEST_CASE("gradcheck: the derivative at kinks and ties is the documented convention") {
  const Tensor x = tensor<double>({0.0, -1.0, 2.0}).set_requires_grad();
  {
    Tape tape;
    tape.backward(sum(relu(x)));
  }
  CHECK(x.grad().to_vector<double>() == std::vector<double>{0.0, 0.0, 1.0});
  const Tensor ties = tensor<double>({{3.0, 1.0, 3.0, 3.0}, {1.0, 5.0, 2.0, 0.0}}).set_requires_grad();
  {
    Tape tape;
    tape.backward(max(ties, 1), {.seed = tensor<double>({6.0, 7.0})});
  }
  CHECK(ties.grad().to_vector<double>() == std::vector<double>{2.0, 0.0, 2.0, 2.0, 0.0, 7.0, 0.0, 0.0});
}

TEST_CASE("gradcheck leaves values and gradients as it found them, also when the function throws") {
  Tensor x = tensor<double>({1, 2}).set_requires_grad();
  x.set_gradient(tensor<double>({7, 8}));
  int calls = 0;
  CHECK_THROWS_AS(gradcheck(
                      [&](const std::vector<Tensor>& in) {
                        if (++calls == 3) throw Error("in the middle");
                        return square(in[0]);
                      },
                      {x}),
                  Error);
  CHECK(x.to_vector<double>() == std::vector<double>{1, 2});
  CHECK(x.grad().to_vector<double>() == std::vector<double>{7, 8});
  const NoGrad outside;  // does not hinder it
  CHECK(gradcheck([](const std::vector<Tensor>& in) { return in[0] * in[1]; }, {x, x}).ok);
  CHECK(x.grad().to_vector<double>() == std::vector<double>{7, 8});
}
