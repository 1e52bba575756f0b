#include "cases.hpp"

#include <fmt/format.h>

#include "case_list.hpp"

namespace wengert::cases {

namespace {

// A well-mixed function of 64 bits (the finaliser of SplitMix64): the cases need no generator of the library.
std::uint64_t mix(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

}  // namespace

std::vector<double> make_values(Values kind, std::int64_t count, std::uint64_t seed) {
  std::vector<double> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint64_t bits = mix(1000 * seed + i);
    const double unit = static_cast<double>(bits >> 44) / 1048576.0;  // 20 bits in [0, 1)
    switch (kind) {
      case Values::normal: values[i] = (bits % 2 == 0 ? 1.0 : -1.0) * (0.0625 + 1.9375 * unit); break;
      case Values::positive: values[i] = 0.5 + 1.5 * unit; break;
      case Values::distinct: values[i] = static_cast<double>(i) / 8.0 - static_cast<double>(count) / 16.0; break;
      case Values::few: values[i] = static_cast<double>(bits % 3) - 1.0; break;
    }
    values[i] = static_cast<double>(static_cast<float>(values[i]));
  }
  if (kind == Values::distinct)
    for (std::size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[mix(7000 * seed + i) % i]);
  return values;
}

Input ids(std::vector<std::int64_t> values, const Shape& shape, DType dtype) {
  return {.shape = shape, .requires_grad = false, .ids = std::move(values), .dtype = dtype};
}

std::vector<Tensor> make_inputs(const Case& which, DType dtype, Backend& backend) {
  std::vector<Tensor> tensors;
  for (std::size_t i = 0; i < which.inputs.size(); ++i) {
    const Input& input = which.inputs[i];
    if (!is_floating(input.dtype)) {
      const Tensor wide = tensor(input.ids, input.shape, backend);
      tensors.push_back(input.dtype == DType::int64 ? wide : wide.to(input.dtype));
      continue;
    }
    tensors.push_back(tensor(make_values(input.values, input.shape.numel(), i + 1), input.shape, backend).to(dtype));
    tensors.back().set_requires_grad(input.requires_grad);
  }
  return tensors;
}

const std::vector<Case>& all() {
  static const std::vector<Case> list = [] {
    std::vector<Case> cases;
    add_elementwise(cases);
    add_reductions(cases);
    add_shapes(cases);
    add_linear(cases);
    add_losses(cases);
    add_embeddings(cases);
    add_normalization(cases);
    add_attention(cases);
    return cases;
  }();
  return list;
}

}  // namespace wengert::cases
