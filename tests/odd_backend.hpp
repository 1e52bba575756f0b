#pragma once
/// The backend "odd", for tests: as unlike the host as a CPU allows. Its addresses cannot be dereferenced (the real
/// memory lies elsewhere), fresh blocks are full of NaN, and every copy into, out of and within its memory is counted.
/// Whatever passes on it does not rely on the host seeing a tensor's values.

#include <cstdint>

#include "wengert/backend.hpp"

namespace wengert::odd {

/// Transfers since the start of the process; those of no bytes do not count.
struct Counts {
  std::int64_t uploads = 0, downloads = 0, copies = 0;
  friend bool operator==(const Counts&, const Counts&) = default;
};
Counts counts();

Memory& memory();
/// Where the byte behind one of this memory's addresses really lies. Throws Error for an address of another memory.
void* real(const void* address);

}  // namespace wengert::odd
