#pragma once
/// Named tensors in files of the safetensors format (https://huggingface.co/docs/safetensors): a JSON header, then the
/// values, little-endian and row-major, without holes.
///
/// A file comes from anywhere: everything its header says is checked, against the real size of the file, before
/// anything is allocated, and every complaint is an IoError: `safetensors: cannot read "path": tensor "name": rule`.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "wengert/named.hpp"
#include "wengert/tensor.hpp"

namespace wengert::io {

/// Free-form text that a file carries along.
struct MetadataEntry {
  std::string key, value;
};
using Metadata = std::vector<MetadataEntry>;
/// The value of `key`, if it is there.
std::optional<std::string> find(const Metadata& metadata, std::string_view key);

/// The 16-bit floating types that exist in files alone: IEEE binary16, and the upper half of binary32.
enum class Half : std::uint8_t { float16, bfloat16 };

struct SaveOptions {
  Metadata metadata{};
  /// float32 and float64 tensors are rounded to this type: to nearest, ties to even; NaN stays NaN, what is too large
  /// becomes infinity, subnormals are kept.
  std::optional<Half> dtype{};
};

/// Writes tensors, from any backend, as a state dict holds them: `save_safetensors(model.state_dict(),
/// "m.safetensors")`.
///
/// Tensors that share their memory (tied weights) are written once, under the first of their names in alphabetical
/// order; the metadata say so, `{"head.weight": "embed.weight"}`, as Hugging Face's `save_model` does, and
/// `load_safetensors` ties them again. The file is written beside `path`, flushed and renamed: whatever happens, `path`
/// holds all of the old content or all of the new (what a killed process leaves beside it, the next save
/// removes). Throws IoError, with nothing touched, for what could not be read back: a name twice, "__metadata__" or not
/// UTF-8, an undefined tensor, metadata with the same key twice or that look like a tied name.
void save_safetensors(const NamedTensors& tensors, const std::string& path, const SaveOptions& options = {});

/// All tensors of a file, sorted by name: F32, F64, I32 and I64 as they are, F16 and BF16 as float32; tied ones under
/// each of their names, sharing memory. Throws IoError, and DTypeError for any other type; SafetensorsFile reads what
/// else there is in such a file.
NamedTensors load_safetensors(const std::string& path, Backend& backend = current_backend());

/// What the header says of one tensor.
struct TensorInfo {
  std::string name{};
  std::string dtype{};  ///< as the format calls it: "F32", "BF16", "U8", ...
  Shape shape{};
  std::int64_t begin = 0, end = 0;  ///< its bytes, counted from the first byte of the values
  std::string tied_to{};            ///< the tensor whose values these are as well; empty for most
};

/// A file whose header has been read and checked, and whose tensors are read one by one when asked for.
class SafetensorsFile {
 public:
  /// Throws IoError.
  explicit SafetensorsFile(const std::string& path);
  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;
  ~SafetensorsFile();

  /// Sorted by name, tied names included.
  const std::vector<TensorInfo>& tensors() const;
  /// Without the entries that tie names.
  const Metadata& metadata() const;
  /// Reads one tensor. Throws IoError when there is none of that name, DTypeError when no tensor can hold its type.
  Tensor read(std::string_view name, Backend& backend = current_backend()) const;
  /// What `load_safetensors` gives.
  NamedTensors read_all(Backend& backend = current_backend()) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace wengert::io
