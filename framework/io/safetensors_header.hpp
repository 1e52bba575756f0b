#pragma once
// The JSON header of a safetensors file.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "files.hpp"
#include "wengert/safetensors.hpp"

namespace wengert::io::detail {

inline constexpr std::uint64_t largest_header = 100'000'000;  // bytes; the limit of the format's own library
inline constexpr std::string_view metadata_name = "__metadata__";

// An element type of files. Some have less than a byte.
struct StoredType {
  std::string_view name;
  std::uint64_t bits;
  std::optional<DType> dtype;  // what reads it
};
// The type called `name`; null if there is none.
const StoredType* stored_type(std::string_view name);

struct Header {
  std::vector<TensorInfo> tensors;  // sorted by name, tied names included
  Metadata metadata;                // without the entries that tie names
};

// Checks everything that `text` says, also against the `data_bytes` bytes that follow it in `file`. Throws IoError.
Header parse_header(const InputFile& file, std::string_view text, std::uint64_t data_bytes);

// Why no tensor of a file may be called `name`; empty if it may.
std::string name_problem(std::string_view name);

}  // namespace wengert::io::detail
