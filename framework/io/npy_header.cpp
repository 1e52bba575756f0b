#include "npy_header.hpp"

#include <fmt/format.h>

#include <charconv>
#include <limits>
#include <vector>

namespace wengert::io::detail {

namespace {

// The part of Python's literals that NumPy writes here: strings, True and False, tuples of integers.
class Literals {
 public:
  Literals(const InputFile& file, std::string_view text) : file_(file), rest_(text) {}

  // True, and one token further, if `token` comes next.
  bool take(std::string_view token) {
    skip_space();
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }
  void expect(std::string_view token) {
    if (!take(token)) fail(fmt::format("'{}' expected", token));
  }
  bool at_end() {
    skip_space();
    return rest_.empty();
  }

  std::string_view string() {
    const std::string_view quote = take("'") ? "'" : "\"";
    if (quote == "\"") expect(quote);
    const std::size_t end = rest_.find(quote);
    const std::string_view value = rest_.substr(0, end);
    if (end == std::string_view::npos || value.find_first_of("\\\n") != std::string_view::npos)
      fail("a string without an end, or with a backslash");
    rest_.remove_prefix(end + 1);
    return value;
  }
  bool boolean() {
    if (take("True")) return true;
    expect("False");
    return false;
  }
  Shape shape() {
    std::vector<std::int64_t> extents;
    bool comma = true;
    expect("(");
    while (!take(")")) {
      if (!comma) fail("',' expected");
      extents.push_back(integer());
      comma = take(",");
    }
    if (extents.size() == 1 && !comma) fail("a shape that is no tuple");
    if (std::ssize(extents) > Shape::max_rank)
      file_.fail(fmt::format("{} axes; a Tensor has at most {}", extents.size(), Shape::max_rank));
    std::int64_t product = 1;
    for (const std::int64_t extent : extents)
      if (extent > 0 && __builtin_mul_overflow(product, extent, &product))
        file_.fail("a shape of more than 2^63 - 1 elements");
    return Shape(std::span<const std::int64_t>(extents));
  }
  // For error texts: what stands here.
  std::string_view ahead() {
    skip_space();
    return rest_;
  }

  [[noreturn]] void fail(std::string_view reason) {
    file_.fail(fmt::format("the header is not what NumPy writes: {} before {}", reason, in_quotes(ahead())));
  }

 private:
  void skip_space() {
    while (!rest_.empty() && (rest_[0] == ' ' || rest_[0] == '\n' || rest_[0] == '\t' || rest_[0] == '\r'))
      rest_.remove_prefix(1);
  }
  std::int64_t integer() {
    skip_space();
    std::int64_t value = -1;
    const auto result = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (result.ec != std::errc() || value < 0) fail("an extent from 0 to 2^63 - 1 expected");
    rest_.remove_prefix(static_cast<std::size_t>(result.ptr - rest_.data()));
    take("L");  // as Python 2 wrote it
    return value;
  }

  const InputFile& file_;
  std::string_view rest_;
};

}  // namespace

NpyHeader parse_npy_header(const InputFile& file, std::string_view text) {
  Literals literals(file, text);
  NpyHeader header;
  bool descr = false, order = false, shape = false;
  const auto once = [&](bool& seen) {
    if (seen) literals.fail("a key twice");
    seen = true;
  };
  literals.expect("{");
  while (!literals.take("}")) {
    const std::string_view key = literals.string();
    literals.expect(":");
    if (key == "descr") {
      once(descr);
      if (literals.ahead().starts_with('['))
        file.fail(
            fmt::format("a structured type; only plain numbers can be read: descr {}", in_quotes(literals.ahead())));
      header.descr = literals.string();
    } else if (key == "fortran_order") {
      once(order);
      header.fortran_order = literals.boolean();
    } else if (key == "shape") {
      once(shape);
      header.shape = literals.shape();
    } else {
      literals.fail(fmt::format("unknown key {}", in_quotes(key)));
    }
    if (!literals.take(",")) {
      literals.expect("}");
      break;
    }
  }
  if (!literals.at_end()) literals.fail("nothing more expected");
  if (!descr || !order || !shape) literals.fail("descr, fortran_order or shape is missing");
  return header;
}

}  // namespace wengert::io::detail
