#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>

#include "../core/replacement.hpp"
#include "wengert/report.hpp"

namespace wengert::report {

void write_file(std::string_view what, const std::string& path, std::string_view content) {
  wengert::detail::Replacement file(what, path);
  file.write(content);
  file.commit();
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
