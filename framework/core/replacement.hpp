#pragma once
// Files that are replaced as a whole. Private to the libraries of the framework.

#include <cstddef>
#include <string>
#include <string_view>

namespace wengert::detail {

// Writes a file beside `path`, then puts it in the place of `path`, behind any symbolic links: whatever happens, `path`
// holds all of the old content or all of the new. What a killed process leaves beside it, the next one removes. A
// device, a pipe or a file without a name is written to as it stands. Every function throws IoError: `what: cannot
// write "path": reason`.
class Replacement {
 public:
  Replacement(std::string_view what, const std::string& path);
  Replacement(const Replacement&) = delete;
  Replacement& operator=(const Replacement&) = delete;
  // Removes what was written, unless it was committed.
  ~Replacement();

  void write(const void* data, std::size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  // Flushes to the disk, renames, and flushes the folder.
  void commit();

 private:
  [[noreturn]] void fail(int error) const;

  std::string what_, path_;
  std::string target_, beside_;  // `beside_` is empty for what cannot be replaced
  int file_ = -1;
};

}  // namespace wengert::detail
