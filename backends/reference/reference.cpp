#include "wengert/backends/reference.hpp"

namespace wengert::reference {

template struct Kernels<float>;
template struct Kernels<double>;

wengert::Kernels& Backend::kernels(DType dtype) {
  static Kernels<float> floats;
  static Kernels<double> doubles;
  if (dtype == DType::float64) return doubles;
  return floats;
}

std::vector<KernelOrigin> Backend::kernel_origins() const { return wengert::kernel_origins<Kernels<float>>(); }

wengert::Backend& instance() {
  static Backend backend;
  return backend;
}

}  // namespace wengert::reference
