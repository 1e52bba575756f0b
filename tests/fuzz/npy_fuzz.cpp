/// libFuzzer: any bytes as an .npy file. What loads is written and read back the same.

#include <cstring>

#include "fuzz.hpp"
#include "wengert/npy.hpp"
#include "wengert/tensor.hpp"

using namespace wengert;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fuzz::MemoryFile file(data, size);
  try {
    const Tensor tensor = io::load_npy(file.path(), fuzz::backend());
    const std::size_t bytes = tensor.storage().bytes();
    fuzz::require(bytes <= 4 * size, "size");  // bytes become int32
    const fuzz::MemoryFile copy(nullptr, 0);
    io::save_npy(tensor, copy.path());
    const Tensor again = io::load_npy(copy.path(), fuzz::backend());
    fuzz::require(again.shape() == tensor.shape() && again.dtype() == tensor.dtype(), "shape");
    fuzz::require(bytes == 0 || std::memcmp(again.storage().read(), tensor.storage().read(), bytes) == 0, "values");
  } catch (const IoError& error) {
    fuzz::require(std::strchr(error.what(), '\n') == nullptr, "an error text of more than one line");
  }
  return 0;
}
