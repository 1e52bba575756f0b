/// libFuzzer: any bytes as a safetensors file. What loads is within the file, and is written and read back the same.

#include <algorithm>
#include <cstring>

#include "fuzz.hpp"
#include "wengert/safetensors.hpp"

using namespace wengert;

namespace {

bool same(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() &&
         (a.numel() == 0 || std::memcmp(a.storage().read(), b.storage().read(), a.storage().bytes()) == 0);
}

void round_trip(const io::SafetensorsFile& file, std::size_t size) {
  NamedTensors tensors;
  for (const io::TensorInfo& info : file.tensors()) {
    fuzz::require(info.begin >= 0 && info.begin <= info.end && static_cast<std::size_t>(info.end) <= size, "range");
    try {
      tensors.push_back({info.name, file.read(info.name, fuzz::backend())});
      // Half the types grow when they are read, none more than that.
      fuzz::require(tensors.back().tensor.storage().bytes() <= 2 * size, "size");
    } catch (const DTypeError&) {
    }
  }
  // A tensor that was left out may have been what a key or a value of the metadata named.
  if (tensors.size() != file.tensors().size()) return;
  const fuzz::MemoryFile copy(nullptr, 0);
  io::save_safetensors(tensors, copy.path(), {.metadata = file.metadata()});
  const io::SafetensorsFile again(copy.path());
  fuzz::require(again.tensors().size() == tensors.size(), "number of tensors");
  fuzz::require(again.metadata().size() == file.metadata().size(), "metadata");
  for (const io::MetadataEntry& entry : file.metadata())
    fuzz::require(io::find(again.metadata(), entry.key) == entry.value, "metadata");
  for (const NamedTensor& entry : tensors)
    fuzz::require(same(again.read(entry.name, fuzz::backend()), entry.tensor), "values");
}

}  // namespace

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

/// Mostly changes the JSON alone and lets its length agree, which chance would not do often enough.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned int seed) {
  std::uint64_t length = 0;
  if (size >= sizeof(length)) std::memcpy(&length, data, sizeof(length));
  const bool fits = size >= sizeof(length) && length <= size - sizeof(length);
  // Where no byte is left for the JSON, LLVMFuzzerMutate would write one all the same.
  if (!fits || max_size - (size - length) == 0 || seed % 4 == 0) return LLVMFuzzerMutate(data, size, max_size);
  std::uint8_t* const header = data + sizeof(length);
  const std::string values(header + length, data + size);
  length = LLVMFuzzerMutate(header, length, max_size - sizeof(length) - values.size());
  std::memcpy(data, &length, sizeof(length));
  std::copy(values.begin(), values.end(), header + length);
  return sizeof(length) + length + values.size();
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fuzz::MemoryFile file(data, size);
  try {
    const io::SafetensorsFile opened(file.path());
    round_trip(opened, size);
  } catch (const IoError& error) {
    fuzz::require(std::strchr(error.what(), '\n') == nullptr, "an error text of more than one line");
  }
  return 0;
}
