// Looks three rows up and prints whose kernels did it.
#include <wengert/kernels.hpp>
#include <wengert/wengert.hpp>

#include <cstdio>

namespace wg = wengert;

int main() {
  try {
    const wg::Tensor rows =
        wg::embedding(wg::tensor<float>({{1, 2}, {3, 4}, {5, 6}}), wg::tensor<std::int64_t>({2, 0, 2}));
    if (rows.to_vector<float>() != std::vector<float>{5, 6, 1, 2, 5, 6}) return 2;
    for (const wg::KernelOrigin& kernel : wg::current_backend().kernel_origins())
      std::printf("%.*s: %.*s\n", static_cast<int>(kernel.kernel.size()), kernel.kernel.data(),
                  static_cast<int>(kernel.origin.size()), kernel.origin.data());
    return 0;
  } catch (const wg::BackendError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
