#pragma once
// Where each id of a batch occurs.

#include <cstdint>
#include <optional>

#include "wengert/tensor.hpp"

namespace wengert::xsimd_backend {

struct Occurrences {
  std::int64_t count = 0;  // different ids
  Tensor ids;              // (count), ascending
  Tensor order;            // (m): places in the batch, by id, places of one id ascending
  Tensor starts;           // (count + 1): where each id's places begin in `order`
};

// ids (m) of a table of num_rows rows; those equal to `skip` are left out. Time and memory follow m.
Occurrences find_occurrences(const Tensor& ids, std::int64_t num_rows, std::optional<std::int64_t> skip);

// The ids of a batch, told apart by whether they occur once.
struct Repeats {
  std::int64_t count = 0;  // ids that occur more than once
  Tensor slots;     // (m): for the place of an id that occurs once its number among the different ids; otherwise -1
  Tensor repeated;  // (count): the numbers of the others
};
Repeats find_repeats(const Occurrences& found, std::int64_t m);

}  // namespace wengert::xsimd_backend
