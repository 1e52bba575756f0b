#include "files.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "wengert/error.hpp"

namespace wengert::io::detail {

std::string in_quotes(std::string_view text) {
  using nlohmann::json;
  constexpr std::size_t most = 200;
  const bool cut = text.size() > most;
  std::string out = json(text.substr(0, most)).dump(-1, ' ', false, json::error_handler_t::replace);
  if (cut) out += "...";
  return out;
}

InputFile::InputFile(std::string_view what, const std::string& path) : what_(what), path_(path) {
  file_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe must not block
  if (file_ < 0) fail(std::strerror(errno));
  struct stat status {};
  const int error = fstat(file_, &status) == 0 ? 0 : errno;
  if (error == 0 && S_ISREG(status.st_mode)) {
    size_ = static_cast<std::uint64_t>(status.st_size);
    return;
  }
  close(file_);
  fail(error != 0 ? std::strerror(error) : "it is not a regular file");
}

InputFile::~InputFile() { close(file_); }

void InputFile::read(std::uint64_t offset, void* to, std::size_t bytes) const {
  char* next = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t count = pread(file_, next, bytes, static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(std::strerror(errno));
    if (count == 0) fail("the file became shorter while it was read");
    next += count;
    offset += static_cast<std::uint64_t>(count);
    bytes -= static_cast<std::size_t>(count);
  }
}

void InputFile::fail(std::string_view reason) const {
  throw IoError(fmt::format("{}: cannot read \"{}\": {}", what_, path_, reason));
}

HostValues::HostValues(const Tensor& tensor) : tensor_(tensor), bytes_(tensor.storage().bytes()) {
  const Storage& storage = tensor.storage();
  if (storage.memory().host_visible()) {
    data_ = storage.read();
    return;
  }
  copy_ = std::make_unique_for_overwrite<std::byte[]>(bytes_);
  storage.memory().download(copy_.get(), storage.read(), bytes_);
  data_ = copy_.get();
}

HostTensor::HostTensor(const Shape& shape, DType dtype, Backend& backend) : tensor_(empty(shape, dtype, backend)) {
  if (tensor_.storage().memory().host_visible()) {
    data_ = tensor_.storage().write();
    return;
  }
  staging_ = std::make_unique_for_overwrite<std::byte[]>(tensor_.storage().bytes());
  data_ = staging_.get();
}

Tensor HostTensor::finish() {
  if (staging_) tensor_.storage().memory().upload(tensor_.storage().write(), staging_.get(), tensor_.storage().bytes());
  return std::move(tensor_);
}

}  // namespace wengert::io::detail
