#include "replacement.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "wengert/error.hpp"

namespace wengert::detail {

namespace {

// Where `path` leads through symbolic links.
std::filesystem::path behind_links(std::filesystem::path path) {
  std::error_code ignored;
  for (int links = 0; links < 32 && std::filesystem::is_symlink(path, ignored); ++links)
    path = path.parent_path() / std::filesystem::read_symlink(path, ignored);
  return path;
}

// Some file systems cannot flush; that is no failure of the write.
bool flushed(int file) { return fsync(file) == 0 || errno == EINVAL || errno == ENOTSUP || errno == EROFS; }

}  // namespace

Replacement::Replacement(std::string_view what, const std::string& path)
    : what_(what), path_(path), target_(behind_links(path).string()) {
  struct stat old {};
  const bool exists = stat(target_.c_str(), &old) == 0;
  if (exists && !S_ISREG(old.st_mode)) {
    file_ = open(target_.c_str(), O_WRONLY | O_CLOEXEC);
    if (file_ < 0) fail(errno);
    return;
  }
  // A name that no other thread, process or machine uses: O_EXCL decides.
  static std::atomic<std::uint64_t> count{0};
  do {
    beside_ = fmt::format("{}.{}-{}.tmp", target_, getpid(), count++);
    file_ = open(beside_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (file_ < 0 && errno == EEXIST);
  if (file_ < 0) {
    beside_.clear();
    fail(errno);
  }
  if (exists) fchmod(file_, old.st_mode & 07777);  // who may read the old file may read the new one
}

Replacement::~Replacement() {
  if (file_ >= 0) close(file_);
  if (!beside_.empty()) unlink(beside_.c_str());
}

void Replacement::fail(int error) const {
  throw IoError(fmt::format("{}: cannot write \"{}\": {}", what_, path_, std::strerror(error)));
}

void Replacement::write(const void* data, std::size_t bytes) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(file_, next, bytes);
    if (written < 0) {
      if (errno == EINTR) continue;
      fail(errno);
    }
    next += written;
    bytes -= static_cast<std::size_t>(written);
  }
}

void Replacement::commit() {
  if (!beside_.empty() && !flushed(file_)) fail(errno);
  const int closed = close(file_);
  file_ = -1;
  if (closed != 0) fail(errno);
  if (beside_.empty()) return;
  if (std::rename(beside_.c_str(), target_.c_str()) != 0) fail(errno);
  beside_.clear();

  // The new name itself must reach the disk. A folder that we may not open is left to the system.
  const std::string folder = std::filesystem::path(target_).parent_path().string();
  const int directory = open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return;
  const int error = flushed(directory) ? 0 : errno;
  close(directory);
  if (error != 0) fail(error);
}

}  // namespace wengert::detail
