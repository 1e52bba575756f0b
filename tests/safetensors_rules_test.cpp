/// safetensors files that break a rule of the format are refused, with the rule in the text, and never written.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "file_tools.hpp"
#include "tensor_tools.hpp"
#include "wengert/io.hpp"

using namespace wengert;
using namespace wengert::testing;
using io::load_safetensors;
using io::SafetensorsFile;
using io::save_safetensors;

TEST_CASE("SER-01, SER-02: every rule of the format, with the reason in the text") {
  const TemporaryFolder folder;
  const std::string path = folder.file("bad.safetensors"), eight(8, 'x'), four(4, 'x');
  const auto refused = [&](const std::string& bytes, const std::string& reason) {
    write_bytes(path, bytes);
    const std::int64_t before = host_memory().stats().in_use;
    const std::string text = error_of([&] { (void)load_safetensors(path); });
    CHECK(text == "safetensors: cannot read \"" + path + "\": " + reason);
    CHECK(text.find('\n') == std::string::npos);
    CHECK(host_memory().stats().in_use == before);
  };
  const auto header = [&](const std::string& text, const std::string& values, const std::string& reason) {
    CAPTURE(text);
    refused(with_header(text, values), reason);
  };
  const auto one = [&](const std::string& dtype, const std::string& shape, const std::string& offsets,
                       const std::string& reason) {
    header("{" + entry("a", dtype, shape, offsets) + "}", four, "tensor \"a\" " + reason);
  };

  // The length of the header.
  refused("", "file shorter than header says: need 8, have 0");
  refused("1234567", "file shorter than header says: need 8, have 7");
  refused(little_endian(0, 8), "the header does not begin with '{'");
  refused(little_endian(2, 8), "file shorter than header says: need 10, have 8");
  refused(little_endian(7, 8) + "{}", "file shorter than header says: need 15, have 10");
  refused(little_endian(200'000'000, 8) + "{}", "a header of 200000000 bytes; at most 100000000 are allowed");
  refused(little_endian(UINT64_MAX - 1, 8) + "{}",
          "a header of 18446744073709551614 bytes; at most 100000000 are allowed");
  refused(little_endian(1, 8) + "{}",
          "the header is not JSON at its byte 2: unexpected end of input; expected string literal");

  // JSON.
  header("[]", "", "the header does not begin with '{'");
  header(" {}", "", "the header does not begin with '{'");
  header("{}x", "", "the header is not JSON at its byte 3: invalid literal");
  header("{\"a\":}", "", "the header is not JSON at its byte 6: unexpected '}'; expected '[', '{', or a literal");
  header("{\"a\":[[[[", "", "tensor \"a\" is not an object of dtype, shape and data_offsets");
  header("{\"a\":" + std::string(1'000'000, '['), "", "tensor \"a\" is not an object of dtype, shape and data_offsets");
  header("{" + entry("a", "F32", "[" + std::string(1'000'000, '['), "[0,4]"), "",
         "tensor \"a\" has a shape that is not a list of unsigned integers");
  header("{\"a\":3}", "", "tensor \"a\" is not an object of dtype, shape and data_offsets");
  header("{\"a\":null}", "", "tensor \"a\" is not an object of dtype, shape and data_offsets");
  header("{\"a\":\"F32\"}", "", "tensor \"a\" is not an object of dtype, shape and data_offsets");
  header("{\"a\":{\"b\":1}}", "", "tensor \"a\" has the unknown key \"b\"");
  header("{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F64\"}}", "", "tensor \"a\" duplicate key \"dtype\"");
  header("{\"a\":{\"dtype\":{}}}", "", "tensor \"a\" has a dtype that is not a string");
  header("{\"a\":{\"dtype\":[]}}", "", "tensor \"a\" has a dtype that is not a string");
  header("{\"a\":{\"dtype\":7}}", "", "tensor \"a\" has a dtype that is not a string");
  header("{\"a\":{}}", "", "tensor \"a\" has no dtype");
  header("{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", four, "tensor \"a\" has no shape");
  header("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", four, "tensor \"a\" has no data_offsets");

  // Names.
  header("{\"\xFF\xFE\":1}", "", "the header is not JSON at its byte 3: invalid string: ill-formed UTF-8 byte");
  header("{\"a\\u0000b\":1}", "", "the name of tensor \"a\\u0000b\" holds a NUL character");
  const std::string a04 = entry("a", "F32", "[1]", "[0,4]"), a48 = entry("a", "F32", "[1]", "[4,8]");
  header("{" + a04 + "," + a48 + "}", eight, "duplicate key \"a\"");
  header("{\"__metadata__\":{},\"__metadata__\":{}}", "", "duplicate key \"__metadata__\"");
  header("{" + entry(std::string(1000, 'n'), "F32", "[2]", "[0,4]") + "}", four,
         "tensor \"" + std::string(200, 'n') + "\"... has 4 bytes between its data_offsets, but F32 [2] takes 8");

  // Metadata.
  header("{\"__metadata__\":{\"k\":5}}", "", "__metadata__: the value of \"k\" is not a string");
  header("{\"__metadata__\":{\"k\":{}}}", "", "__metadata__: the value of \"k\" is not a string");
  header("{\"__metadata__\":{\"k\":null}}", "", "__metadata__: the value of \"k\" is not a string");
  header("{\"__metadata__\":[]}", "", "__metadata__ is not an object of strings");
  header("{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}", "", "duplicate key \"k\" in __metadata__");
  header("{" + entry("__metadata__", "F32", "[1]", "[0,4]") + "}", four,
         "__metadata__: the value of \"shape\" is not a string");

  // dtype, shape, data_offsets.
  one("F31", "[1]", "[0,4]", "has the unknown dtype \"F31\"");
  one("f32", "[1]", "[0,4]", "has the unknown dtype \"f32\"");
  one("F32", "[1000,1000]", "[0,4]", "has 4 bytes between its data_offsets, but F32 [1000, 1000] takes 4000000");
  one("F32", "[1]", "[0,3]", "has 3 bytes between its data_offsets, but F32 [1] takes 4");
  one("F64", "[1]", "[0,4]", "has 4 bytes between its data_offsets, but F64 [1] takes 8");
  one("F32", "[8589934592,2147483648]", "[0,0]", "has a shape of more than 2^63 - 1 elements");
  one("F32", "[0,8589934592,2147483648]", "[0,0]", "has a shape of more than 2^63 - 1 elements");
  one("F32", "[18446744073709551615]", "[0,4]", "has a shape of more than 2^63 - 1 elements");
  one("F32", "[4611686018427387905]", "[0,4]", "has a shape of more than 2^64 - 1 bits");
  one("F4", "[7]", "[0,4]", "has 7 values of 4 bits: no whole number of bytes");
  one("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]", "has more than 8 axes, the most that a Tensor can have");
  one("F32", "[-1]", "[0,4]", "has a shape that is not a list of unsigned integers");
  one("F32", "[1.0]", "[0,4]", "has a shape that is not a list of unsigned integers");
  one("F32", "[18446744073709551616]", "[0,4]", "has a shape that is not a list of unsigned integers");
  one("F32", "1", "[0,4]", "has a shape that is not a list of unsigned integers");
  one("F32", "[1]", "[8,4]", "begins at 8, behind its end at 4");
  one("F32", "[1]", "[4]", "has data_offsets that are not two unsigned integers");
  one("F32", "[1]", "[]", "has data_offsets that are not two unsigned integers");
  one("F32", "[1]", "[0,4,8]", "has data_offsets that are not two unsigned integers");
  one("F32", "[1]", "[-4,0]", "has data_offsets that are not two unsigned integers");
  one("F32", "[1]", "[0,1e3]", "has data_offsets that are not two unsigned integers");
  one("F32", "[1]", "[\"0\",4]", "has data_offsets that are not two unsigned integers");
  one("F32", "[1]", "{}", "has data_offsets that are not two unsigned integers");
  one("F32", "[1]", "[18446744073709551611,18446744073709551615]", "ends at 18446744073709551615, above 2^63 - 1");

  // Coverage.
  const auto two = [&](const std::string& first, const std::string& second, const std::string& values,
                       const std::string& reason) {
    header("{" + entry("a", "F32", "[2]", first) + "," + entry("b", "F32", "[2]", second) + "}", values, reason);
    header("{" + entry("b", "F32", "[2]", second) + "," + entry("a", "F32", "[2]", first) + "}", values, reason);
  };
  two("[0,8]", "[12,20]", eight + eight + four, "a hole: 4 bytes in front of tensor \"b\" belong to no tensor");
  two("[8,16]", "[16,24]", eight + eight + eight, "a hole: 8 bytes in front of tensor \"a\" belong to no tensor");
  two("[0,8]", "[4,12]", eight + four, "tensor \"b\" overlaps tensor \"a\"");
  two("[0,8]", "[8,16]", eight + eight + "xyz", "3 bytes behind the last tensor belong to no tensor");
  two("[0,8]", "[8,16]", eight + four,
      fmt::format("file shorter than header says: need {}, have {}", 116 + 16, 116 + 12));
  header("{" + entry("a", "F32", "[2]", "[0,8]") + "," + entry("b", "F32", "[2]", "[0,8]") + "}", eight,
         "tensor \"b\" overlaps tensor \"a\"");
  header("{" + entry("a", "F32", "[2]", "[0,8]") + "," + entry("z", "F32", "[0]", "[4,4]") + "}", eight,
         "tensor \"z\" overlaps tensor \"a\"");
  header("{}", "x", "1 bytes behind the last tensor belong to no tensor");

  // What is no file at all.
  CHECK(error_of([&] { (void)load_safetensors(folder.file("none")); }) ==
        "safetensors: cannot read \"" + folder.file("none") + "\": No such file or directory");
  CHECK(error_of([&] { (void)load_safetensors(folder.path.string()); }) ==
        "safetensors: cannot read \"" + folder.path.string() + "\": it is not a regular file");
}

TEST_CASE("SER-02: good files that look odd") {
  const TemporaryFolder folder;
  const std::string path = folder.file("good.safetensors");
  const std::string two(1, '\x40');  // 2.0 ends in this byte
  const std::string values = std::string("\0\0\x80\x3F", 4) + std::string("\0\0\0\x40", 4);
  // Not in the order of the offsets, with spaces and an escape, and tensors of no bytes in between and at the end.
  write_bytes(path, with_header("{ " + entry("b\\u0061", "F32", "[]", "[4, 8]") + " ,\t" +
                                    entry("z", "F64", "[0,4]", "[4,4]") + ",\n" + entry("y", "U8", "[0]", "[8,8]") +
                                    "," + entry("a", "F32", "[1]", "[0,4]") + ",\"__metadata__\":null}  \n",
                                values));
  const SafetensorsFile file(path);
  CHECK(values_of(file.read("a")) == Values{1});
  CHECK(values_of(file.read("ba")) == Values{2});
  CHECK(file.read("ba").dim() == 0);
  CHECK(file.read("z").shape() == Shape{0, 4});
  CHECK(file.metadata().empty());
  for (const char* nothing : {"{}", "{\"__metadata__\":{}}", "{}      "}) {
    write_bytes(path, with_header(nothing, ""));
    CHECK(load_safetensors(path).empty());
  }
  save_safetensors({}, path, {.metadata = {{"k", "v"}}});
  CHECK(load_safetensors(path).empty());
  CHECK(io::find(SafetensorsFile(path).metadata(), "k") == "v");
  save_safetensors({}, path);
  CHECK(read_bytes(path) == with_header("{}      ", ""));
}

TEST_CASE("SER-02: the writer refuses what the reader would refuse, before it touches the file") {
  const TemporaryFolder folder;
  const std::string path = folder.file("a.safetensors");
  save_safetensors({{"old", ones({1})}}, path);
  const std::string before = read_bytes(path);
  const auto refused = [&](const NamedTensors& tensors, const io::Metadata& metadata, const std::string& reason) {
    CHECK(error_of([&] { save_safetensors(tensors, path, {.metadata = metadata}); }) ==
          "safetensors: cannot write \"" + path + "\": " + reason);
    CHECK(read_bytes(path) == before);
    CHECK(folder.count() == 1);
  };
  const Tensor a = ones({2});
  refused({{"__metadata__", a}}, {}, "no tensor may be called \"__metadata__\"");
  refused({{std::string("a\0b", 3), a}}, {}, "the name of tensor \"a\\u0000b\" holds a NUL character");
  refused({{"\xFF\xFE", a}}, {}, "\"\xEF\xBF\xBD\xEF\xBF\xBD\" is not UTF-8");
  refused({{"a", a}, {"b", a.clone()}, {"a", a.clone()}}, {}, "two tensors are called \"a\"");
  refused({{"a", a}, {"b", Tensor()}}, {}, "tensor \"b\" is undefined");
  refused({{"a", a}}, {{"k", "\xC3"}}, "\"\xEF\xBF\xBD\" is not UTF-8");
  refused({{"a", a}}, {{"k", "1"}, {"k", "2"}}, "duplicate key \"k\" in the metadata");
  refused({{"a", a}}, {{"best", "a"}}, "metadata {\"best\": \"a\"} would tie a name to a tensor");
}
