#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "wengert/report.hpp"

namespace wengert::report {

void write_file(std::string_view what, const std::string& path, std::string_view content) {
  // A file is replaced as a whole: written beside the old one, then renamed, behind any symbolic links. A device or a
  // pipe is written to as it stands.
  std::error_code ignored;
  std::filesystem::path target(path);
  for (int links = 0; links < 32 && std::filesystem::is_symlink(target, ignored); ++links)
    target = target.parent_path() / std::filesystem::read_symlink(target, ignored);
  const bool replace = !std::filesystem::exists(target, ignored) || std::filesystem::is_regular_file(target, ignored);
  const std::string beside = replace ? fmt::format("{}.{}.tmp", target.string(), getpid()) : target.string();
  const auto fail = [&](int error) {
    if (replace) unlink(beside.c_str());
    throw IoError(fmt::format("{}: cannot write \"{}\": {}", what, path, std::strerror(error)));
  };
  const int file = open(beside.c_str(), O_WRONLY | O_CLOEXEC | (replace ? O_CREAT | O_TRUNC : 0), 0666);
  if (file < 0) fail(errno);
  while (!content.empty()) {
    const ssize_t written = write(file, content.data(), content.size());
    if (written < 0) {
      const int error = errno;
      if (error == EINTR) continue;
      close(file);
      fail(error);
    }
    content.remove_prefix(static_cast<std::size_t>(written));
  }
  if (close(file) != 0) fail(errno);
  if (replace && std::rename(beside.c_str(), target.c_str()) != 0) fail(errno);
}

namespace {

void append_name(std::string& text, const std::string& name) {
  if (name.find_first_of(",\"\r\n") == std::string::npos) {
    text += name;
    return;
  }
  text += '"';
  for (const char c : name) text.append(c == '"' ? 2 : 1, c);
  text += '"';
}

void append_number(std::string& text, double value) {
  if (std::isnan(value)) return;
  std::array<char, 32> digits;  // NOLINT(cppcoreguidelines-pro-type-member-init)
  const auto result = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  text.append(digits.data(), result.ptr);
}

}  // namespace

Csv::Csv(std::vector<std::string> header) : columns_(header.size()) {
  for (std::size_t i = 0; i < header.size(); ++i) {
    if (i > 0) text_ += ',';
    append_name(text_, header[i]);
  }
  text_ += '\n';
}

Csv& Csv::row(std::span<const double> values) {
  if (values.size() != columns_)
    throw ShapeError(fmt::format("Csv: a row of {} numbers for {} columns", values.size(), columns_));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i > 0) text_ += ',';
    append_number(text_, values[i]);
  }
  text_ += '\n';
  return *this;
}

void Csv::save(const std::string& path) const { write_file("Csv", path, text_); }

}  // namespace wengert::report
