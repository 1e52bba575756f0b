#pragma once
/// Text as training data: files, characters, a vocabulary.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace wengert::data {

/// The characters (Unicode code points) of UTF-8 text. A byte that is not part of valid UTF-8 becomes U+DC00 + byte, as
/// Python's "surrogateescape" does, so that every file can be read and `to_utf8` gives its bytes back.
std::u32string from_utf8(std::string_view bytes);
std::string to_utf8(std::u32string_view text);

/// The bytes of one regular file. Throws IoError: missing, no regular file, unreadable, empty.
std::string read_text_file(const std::string& path);
/// The contents of the regular files of a folder (no links, no subfolders, nothing hidden, no empty files), sorted by
/// name. Throws IoError: missing, no folder, unreadable, no such file in it.
std::vector<std::string> read_text_folder(const std::string& path);

/// The distinct characters of some text, in ascending order; the place of a character is its id.
class Vocabulary {
 public:
  Vocabulary() = default;
  explicit Vocabulary(std::span<const std::u32string> texts);
  std::int64_t size() const { return static_cast<std::int64_t>(characters_.size()); }
  /// Throws IndexError, naming the character and its place, for one that is not in the vocabulary.
  std::vector<std::int64_t> encode(std::u32string_view text) const;
  /// Throws IndexError for an id outside [0, size()).
  std::u32string decode(std::span<const std::int64_t> ids) const;

 private:
  std::u32string characters_;
};

/// Character ids of the parts of some files, one after the other.
struct TextPart {
  std::vector<std::int64_t> ids;
  std::vector<std::int64_t> ends;  ///< of each file's part in `ids`, ascending

  /// Where runs of `length` characters begin that lie within one file: every `stride`-th place of each file.
  std::vector<std::int64_t> windows(std::int64_t length, std::int64_t stride = 1) const;
};

/// Text to train on and to validate with.
struct TextCorpus {
  Vocabulary vocabulary;  ///< of all the text, the validation part included
  TextPart train;         ///< the first part of every file
  TextPart validation;    ///< the last part of every file
};

/// Reads a file, or all files of a folder, and sets the last `validation_share` of each file aside (rounded up, in
/// characters). Throws IoError as the functions above, and when no file leaves `min_characters` for either part.
TextCorpus read_corpus(const std::string& path, double validation_share = 0.1, std::int64_t min_characters = 1);

}  // namespace wengert::data
