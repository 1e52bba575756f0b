#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <memory>
#include <system_error>

#include "wengert/data.hpp"
#include "wengert/error.hpp"

namespace wengert::data {

namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& path, std::string_view reason) {
  throw IoError(fmt::format("text: cannot read \"{}\": {}", path, reason));
}

fs::file_type type_of(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) fail(path, "no such file or folder");
  if (error) fail(path, error.message());
  return status.type();
}

std::string read_bytes(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (!file) fail(path, std::strerror(errno));
  std::string bytes;
  char buffer[1 << 16];
  for (std::size_t count; (count = std::fread(buffer, 1, sizeof(buffer), file.get())) > 0;) bytes.append(buffer, count);
  if (std::ferror(file.get())) fail(path, std::strerror(errno));
  return bytes;
}

using Place = std::vector<std::int64_t>::const_iterator;
void append(TextPart& part, Place begin, Place end) {
  part.ids.insert(part.ids.end(), begin, end);
  part.ends.push_back(std::ssize(part.ids));
}

}  // namespace

std::string read_text_file(const std::string& path) {
  const fs::file_type type = type_of(path);
  if (type == fs::file_type::directory) fail(path, "it is a folder, not a file");
  if (type != fs::file_type::regular) fail(path, "it is not a regular file");
  std::string bytes = read_bytes(path);
  if (bytes.empty()) fail(path, "the file is empty");
  return bytes;
}

std::vector<std::string> read_text_folder(const std::string& path) {
  if (type_of(path) != fs::file_type::directory) fail(path, "it is not a folder");
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    std::error_code ignored;
    if (name.front() != '.' && entry->symlink_status(ignored).type() == fs::file_type::regular) names.push_back(name);
  }
  if (error) fail(path, error.message());
  std::sort(names.begin(), names.end());
  std::vector<std::string> contents;
  for (const std::string& name : names) {
    contents.push_back(read_bytes((fs::path(path) / name).string()));
    if (contents.back().empty()) contents.pop_back();
  }
  if (contents.empty()) fail(path, "the folder holds no regular file with text");
  return contents;
}

TextCorpus read_corpus(const std::string& path, double validation_share, std::int64_t min_characters) {
  if (!(validation_share >= 0 && validation_share <= 1))
    throw ValueError(fmt::format("read_corpus: validation share {} is outside [0, 1]", validation_share));
  std::vector<std::u32string> texts;
  if (type_of(path) == fs::file_type::directory)
    for (const std::string& bytes : read_text_folder(path)) texts.push_back(from_utf8(bytes));
  else
    texts.push_back(from_utf8(read_text_file(path)));

  TextCorpus corpus{Vocabulary(texts), {}, {}};
  std::int64_t longest_train = 0, longest_validation = 0;
  for (const std::u32string& text : texts) {
    const std::vector<std::int64_t> ids = corpus.vocabulary.encode(text);
    const auto kept = static_cast<std::ptrdiff_t>(static_cast<double>(ids.size()) * (1 - validation_share));
    longest_train = std::max<std::int64_t>(longest_train, kept);
    longest_validation = std::max<std::int64_t>(longest_validation, std::ssize(ids) - kept);
    append(corpus.train, ids.begin(), ids.begin() + kept);
    append(corpus.validation, ids.begin() + kept, ids.end());
  }
  if (std::min(longest_train, longest_validation) < min_characters)
    fail(path, fmt::format("too short: {} characters to train on and {} to validate with, needs {} of each",
                           longest_train, longest_validation, min_characters));
  return corpus;
}

std::vector<std::int64_t> TextPart::windows(std::int64_t length, std::int64_t stride) const {
  if (length < 1 || stride < 1)
    throw ValueError(fmt::format("windows: length {} and stride {} must be at least 1", length, stride));
  std::vector<std::int64_t> starts;
  std::int64_t begin = 0;
  for (const std::int64_t end : ends) {
    for (std::int64_t start = begin; start + length <= end; start += stride) starts.push_back(start);
    begin = end;
  }
  return starts;
}

}  // namespace wengert::data
