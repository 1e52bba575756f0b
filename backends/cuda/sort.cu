// The radix sort, in a file of its own: it takes longer to compile than all of our kernels.

#include <cub/device/device_radix_sort.cuh>

#include "check.hpp"
#include "runtime.hpp"

namespace wengert::cuda::inline WENGERT_CUDA_BUILD {

void sort_pairs(const std::int64_t* keys, const std::int64_t* values, std::int64_t count, int end_bit,
                std::int64_t* sorted_keys, std::int64_t* sorted_values) {
  const auto sort = [&](void* scratch, std::size_t& bytes) {
    check(cub::DeviceRadixSort::SortPairs(scratch, bytes, keys, sorted_keys, values, sorted_values, count, 0, end_bit,
                                          static_cast<cudaStream_t>(stream())),
          "sort_pairs");
  };
  std::size_t bytes = 0;
  sort(nullptr, bytes);  // tells how much it needs
  const Scratch<char> scratch(static_cast<std::int64_t>(bytes));
  sort(scratch.data(), bytes);
}

}  // namespace wengert::cuda::inline WENGERT_CUDA_BUILD
