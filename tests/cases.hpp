#pragma once
/// The shared list of cases: every operation and option, over shapes with tails, empty axes, repeated ids and sizes on
/// both sides of every threshold. It drives the tests of the operations, the gradient checks and the benchmarks.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "wengert/gradcheck.hpp"
#include "wengert/ops.hpp"
#include "wengert/random.hpp"

namespace wengert::cases {

/// How the values of an input are made. All are exact as float32, so that every type starts from the same numbers.
enum class Values {
  normal,    ///< in (-2, 2), none closer to 0 than 0.05
  positive,  ///< in (0.5, 2)
  distinct,  ///< in shuffled steps of 1/8, so that a maximum stays where it is under a small change
  few,       ///< -1, 0 or 1: many are equal
};

struct Input {
  Shape shape{};
  Values values = Values::normal;
  bool requires_grad = true;
  std::vector<std::int64_t> ids{};  ///< if not empty or `dtype` is an integer: the values, row-major
  DType dtype = DType::float64;     ///< of ids: int32 or int64; otherwise the type is the caller's choice
};

/// Ids or labels as an input.
Input ids(std::vector<std::int64_t> values, const Shape& shape, DType dtype = DType::int64);

struct Case {
  std::string name;
  std::vector<Input> inputs;
  std::function<Tensor(const std::vector<Tensor>&)> run;  ///< deterministic: restarts the generator if it draws
  Shape shape{};                                          ///< of the result
  double tolerance = 1e-5;  ///< float32 against float64: |a - b| <= tolerance * (1 + |b|), results and gradients
  bool differentiable = true;
  bool finite_differences = true;  ///< false where the derivative is a convention (ties) or the case is too large
  GradcheckOptions gradcheck{};
};

const std::vector<Case>& all();

/// The inputs of a case as leaves of type `dtype` on `backend`; integers keep their type.
std::vector<Tensor> make_inputs(const Case& which, DType dtype, Backend& backend = current_backend());
/// Values in row-major order, exact as float32; `seed` tells inputs apart.
std::vector<double> make_values(Values kind, std::int64_t count, std::uint64_t seed);

}  // namespace wengert::cases
