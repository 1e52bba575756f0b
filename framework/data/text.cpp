#include <fmt/format.h>

#include <algorithm>

#include "wengert/data.hpp"
#include "wengert/error.hpp"

namespace wengert::data {

namespace {

constexpr char32_t escape_base = 0xDC00;  // of bytes that are not UTF-8

/// The length of the valid UTF-8 sequence at the start of `bytes`, and its character; length 0 when there is none.
std::size_t decode_one(std::string_view bytes, char32_t& character) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned char first = byte(0);
  const std::size_t length = first < 0x80         ? 1
                             : first >> 5 == 0x6  ? 2
                             : first >> 4 == 0xE  ? 3
                             : first >> 3 == 0x1E ? 4
                                                  : 0;
  if (length == 0 || length > bytes.size()) return 0;
  character = length == 1 ? first : first & (0x7FU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if (byte(i) >> 6 != 0x2) return 0;
    character = character << 6 | (byte(i) & 0x3FU);
  }
  static constexpr char32_t least[] = {0, 0, 0x80, 0x800, 0x10000};  // below: an overlong form
  if (character < least[length] || character > 0x10FFFF || (character >= 0xD800 && character < 0xE000)) return 0;
  return length;
}

}  // namespace

std::u32string from_utf8(std::string_view bytes) {
  std::u32string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    char32_t character = 0;
    std::size_t length = decode_one(bytes, character);
    if (length == 0) {
      length = 1;
      character = escape_base + static_cast<unsigned char>(bytes[0]);
    }
    text += character;
    bytes.remove_prefix(length);
  }
  return text;
}

std::string to_utf8(std::u32string_view text) {
  std::string bytes;
  const auto put = [&](char32_t byte) { bytes += static_cast<char>(static_cast<unsigned char>(byte)); };
  for (const char32_t c : text) {
    if (c >= escape_base + 0x80 && c <= escape_base + 0xFF) {
      put(c - escape_base);
    } else if (c < 0x80) {
      put(c);
    } else if (c < 0x800) {
      put(0xC0 | c >> 6);
      put(0x80 | (c & 0x3F));
    } else if (c < 0x10000) {
      put(0xE0 | c >> 12);
      put(0x80 | (c >> 6 & 0x3F));
      put(0x80 | (c & 0x3F));
    } else {
      put(0xF0 | c >> 18);
      put(0x80 | (c >> 12 & 0x3F));
      put(0x80 | (c >> 6 & 0x3F));
      put(0x80 | (c & 0x3F));
    }
  }
  return bytes;
}

Vocabulary::Vocabulary(std::span<const std::u32string> texts) {
  std::vector<bool> seen(0x110000);
  for (const std::u32string& text : texts)
    for (const char32_t character : text) seen.at(character) = true;
  for (char32_t character = 0; character < seen.size(); ++character)
    if (seen[character]) characters_ += character;
}

std::vector<std::int64_t> Vocabulary::encode(std::u32string_view text) const {
  std::vector<std::int64_t> ids;
  ids.reserve(text.size());
  for (const char32_t character : text) {
    const auto place = std::lower_bound(characters_.begin(), characters_.end(), character);
    if (place == characters_.end() || *place != character)
      throw IndexError(fmt::format("Vocabulary: character U+{:04X} at {} is not one of the {} known ones",
                                   static_cast<std::uint32_t>(character), ids.size(), size()));
    ids.push_back(place - characters_.begin());
  }
  return ids;
}

std::u32string Vocabulary::decode(std::span<const std::int64_t> ids) const {
  std::u32string text;
  text.reserve(ids.size());
  for (const std::int64_t id : ids) {
    if (id < 0 || id >= size())
      throw IndexError(fmt::format("Vocabulary: id {} at {} is outside [0, {})", id, text.size(), size()));
    text += characters_[static_cast<std::size_t>(id)];
  }
  return text;
}

}  // namespace wengert::data
