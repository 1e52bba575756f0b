#include <wengert/wengert.hpp>

int main() {
  const wengert::Tensor total = wengert::sum(wengert::tensor<float>({1, 2, 3}));
  return total.item() == 6.0 && total.backend().name() == "xsimd" ? 0 : 1;
}
