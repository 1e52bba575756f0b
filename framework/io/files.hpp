#pragma once
// Reading files, and moving values between files and tensors.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "wengert/tensor.hpp"

namespace wengert::io::detail {

// `text` as JSON writes it, on one line and cut to a length that fits into an error text.
std::string in_quotes(std::string_view text);

// One regular file, read at any place.
class InputFile {
 public:
  // Throws IoError that begins with `what`.
  InputFile(std::string_view what, const std::string& path);
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  ~InputFile();

  std::uint64_t size() const { return size_; }
  // Throws IoError unless the file has all of these bytes.
  void read(std::uint64_t offset, void* to, std::size_t bytes) const;
  // Throws IoError: `what: cannot read "path": reason`.
  [[noreturn]] void fail(std::string_view reason) const;

 private:
  std::string what_, path_;
  int file_ = -1;
  std::uint64_t size_ = 0;
};

// The values of a tensor where the host can read them: in place if it sees them, else a copy.
class HostValues {
 public:
  explicit HostValues(const Tensor& tensor);
  const void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  Tensor tensor_;
  std::unique_ptr<std::byte[]> copy_;
  const void* data_;
  std::size_t bytes_;
};

// A new tensor that the host fills, in place if it can.
class HostTensor {
 public:
  HostTensor(const Shape& shape, DType dtype, Backend& backend);
  void* data() { return data_; }
  // The tensor, once it has been filled.
  Tensor finish();

 private:
  Tensor tensor_;
  std::unique_ptr<std::byte[]> staging_;
  void* data_;
};

}  // namespace wengert::io::detail
