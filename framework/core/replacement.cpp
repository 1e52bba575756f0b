#include "replacement.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
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

constexpr std::string_view suffix = ".wengert.tmp";

std::string folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path().string() : ".";
}

// Removes what processes that were killed have left beside `target`: files whose lock nobody holds.
void remove_abandoned(const std::filesystem::path& target) {
  const std::string prefix = target.filename().string() + '.';
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder_of(target), ignored)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(prefix) || !name.ends_with(suffix)) continue;
    const int file = open(entry.path().c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (file < 0) continue;
    if (flock(file, LOCK_EX | LOCK_NB) == 0) unlink(entry.path().c_str());
    close(file);
  }
}

// Some file systems cannot flush; that is no failure of the write.
bool flushed(int file) { return fsync(file) == 0 || errno == EINVAL || errno == ENOTSUP || errno == EROFS; }

}  // namespace

Replacement::Replacement(std::string_view what, const std::string& path)
    : what_(what), path_(path), target_(behind_links(path).string()) {
  struct stat old {
  }, behind{};
  const bool exists = stat(path.c_str(), &old) == 0;
  // What /proc calls a link need not lead to a name: a pipe, a file that is deleted.
  const bool named = stat(target_.c_str(), &behind) == 0 && behind.st_dev == old.st_dev && behind.st_ino == old.st_ino;
  if (exists && !(S_ISREG(old.st_mode) && named)) {
    file_ = open(path.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC);
    if (file_ < 0) fail(errno);
    return;
  }
  remove_abandoned(target_);
  // A name that no other thread, process or machine uses: O_EXCL decides. The lock says that the file is not abandoned;
  // one that was taken for it before it was locked has lost its name.
  static std::atomic<std::uint64_t> count{0};
  for (struct stat made{}; made.st_nlink == 0;) {
    if (file_ >= 0) close(file_);
    beside_ = fmt::format("{}.{}-{}{}", target_, getpid(), count++, suffix);
    file_ = open(beside_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file_ < 0 && errno == EEXIST) continue;
    if (file_ < 0) {
      beside_.clear();
      fail(errno);
    }
    flock(file_, LOCK_EX);
    if (fstat(file_, &made) != 0) made.st_nlink = 1;
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
  // Closing may report what flushing did not; the lock stays with the descriptor that is left.
  const int copy = dup(file_);
  if (copy < 0 || close(copy) != 0) fail(errno);
  if (beside_.empty()) return;
  if (std::rename(beside_.c_str(), target_.c_str()) != 0) fail(errno);
  beside_.clear();

  // The new name itself must reach the disk. A folder that we may not open is left to the system.
  const int folder = open(folder_of(target_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return;
  const int error = flushed(folder) ? 0 : errno;
  close(folder);
  if (error != 0) fail(error);
}

}  // namespace wengert::detail
