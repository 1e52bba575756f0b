/// safetensors files: what is written comes back, what Python wrote loads, and what breaks a rule of the format is
/// refused with the rule in the text.

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <limits>
#include <thread>

#include "../framework/core/tensor_impl.hpp"
#include "../framework/io/half.hpp"
#include "same_bits.hpp"
#include "temporary_folder.hpp"
#include "wengert/io.hpp"
#include "wengert/layers.hpp"
#include "wengert/ops.hpp"
#include "wengert/optim.hpp"
#include "wengert/random.hpp"
#include "wengert/tape.hpp"

using namespace wengert;
using namespace wengert::testing;
using io::load_safetensors;
using io::SafetensorsFile;
using io::save_safetensors;

namespace {

using Values = std::vector<double>;
using Names = std::vector<std::string>;

std::string data(const std::string& name) { return WENGERT_TEST_DATA "/" + name; }
Values values_of(const Tensor& tensor) { return tensor.to_vector<double>(); }
Names names_of(const NamedTensors& tensors) {
  Names names;
  for (const NamedTensor& entry : tensors) names.push_back(entry.name);
  return names;
}

std::string with_header(const std::string& header, const std::string& values) {
  return little_endian(header.size(), 8) + header + values;
}
std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":{}}})", name, dtype, shape, offsets);
}

/// The text of the IoError that `call` throws.
template <class Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const IoError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("safetensors: what is written comes back, from and to every backend") {
  const TemporaryFolder folder;
  const std::string path = folder.file("a.safetensors");
  const NamedTensors saved{
      {"z.weight", tensor(special_values<float>(35, 1), {5, 7})},
      {"double", tensor(special_values<double>(3, 2), {3, 1})},
      {"ids", tensor<std::int64_t>({{1, INT64_MIN}, {INT64_MAX, 0}})},
      {"int", tensor<std::int32_t>({-1, INT32_MIN, INT32_MAX})},
      {"scalar", tensor(std::vector<float>{2.5F}, Shape())},
      {"nothing", zeros({0, 4})},
      {"deep", ones({1, 1, 2, 1, 1, 1, 1, 2})},
      {"", ones({1})},
      {"n\xC3\xA4m\"e\\\n\t\x7F", ones({2})},
  };
  const io::Metadata metadata{{"z", "1"}, {"a\n", "\xE2\x82\xAC \"quoted\""}, {"", ""}};
  save_safetensors(saved, path, {.metadata = metadata});
  CHECK(folder.count() == 1);
  for (const std::string& name : backend_names()) {
    if (!backend_available(name)) continue;
    CAPTURE(name);
    const NamedTensors loaded = load_safetensors(path, backend(name));
    REQUIRE(loaded.size() == saved.size());
    CHECK(std::is_sorted(loaded.begin(), loaded.end(), [](const auto& a, const auto& b) { return a.name < b.name; }));
    for (const NamedTensor& entry : saved) {
      const Tensor tensor = find(loaded, entry.name);
      REQUIRE(tensor.defined());
      CHECK(tensor.backend().name() == name);
      CHECK(tensor.dtype() == entry.tensor.dtype());
      CHECK(tensor.shape() == entry.tensor.shape());
      CHECK(!tensor.requires_grad());
      if (is_floating(tensor.dtype()))
        CHECK_SAME_BITS(tensor.to_vector<double>(), entry.tensor.to_vector<double>());
      else
        CHECK(tensor.to_vector<std::int64_t>() == entry.tensor.to_vector<std::int64_t>());
    }
  }
  const SafetensorsFile file(path);
  REQUIRE(file.metadata().size() == 3);
  for (const io::MetadataEntry& entry : metadata) CHECK(io::find(file.metadata(), entry.key) == entry.value);
  CHECK(!io::find(file.metadata(), "b").has_value());

  // The same tensors give the same bytes, in whatever order they are listed.
  NamedTensors reversed(saved.rbegin(), saved.rend());
  const std::string again = folder.file("again.safetensors");
  save_safetensors(reversed, again, {.metadata = {metadata[2], metadata[1], metadata[0]}});
  CHECK(read_bytes(path) == read_bytes(again));
}

TEST_CASE("safetensors: a layer's state dict, saved and loaded") {
  const TemporaryFolder folder;
  const std::string path = folder.file("embed.safetensors");
  const layers::TransformerEmbedding::Options options{.vocab_size = 11, .max_seq_len = 5, .embed_dim = 3};
  layers::TransformerEmbedding embed(options), other(options);
  save_safetensors(embed.state_dict(), path);
  CHECK(values_of(other.token_embed.weight) != values_of(embed.token_embed.weight));
  other.load_state_dict(load_safetensors(path));
  CHECK(values_of(other.token_embed.weight) == values_of(embed.token_embed.weight));
  CHECK(values_of(other.pos_embed.weight) == values_of(embed.pos_embed.weight));
  CHECK(names_of(load_safetensors(path)) == Names{"pos_embed.weight", "token_embed.weight"});
}

TEST_CASE("safetensors: the header without the values, and one tensor alone") {
  const TemporaryFolder folder;
  const std::string path = folder.file("a.safetensors");
  save_safetensors({{"b", full({100, 10}, 2.0)}, {"a", tensor<std::int64_t>({3, 4})}}, path,
                   {.metadata = {{"k", "v"}}});
  const SafetensorsFile file(path);
  REQUIRE(file.tensors().size() == 2);
  const io::TensorInfo& info = file.tensors()[1];
  CHECK(info.name == "b");
  CHECK(info.dtype == "F32");
  CHECK(info.shape == Shape{100, 10});
  CHECK(info.begin == 16);  // the wider type comes first
  CHECK(info.end == 16 + 4000);
  CHECK(info.tied_to.empty());
  CHECK(values_of(file.read("a")) == Values{3, 4});
  CHECK(values_of(file.read("b")) == Values(1000, 2.0));
  CHECK(error_of([&] { (void)file.read("c"); }) ==
        "safetensors: cannot read \"" + path + "\": there is no tensor \"c\"");
  // An open file stays what it was when its name is given to another.
  save_safetensors({{"b", ones({1})}}, path);
  CHECK(values_of(file.read("b")) == Values(1000, 2.0));
}

TEST_CASE("safetensors: what Python's package wrote") {
  const NamedTensors all = load_safetensors(data("python.safetensors"));
  CHECK(all.size() == 8);
  const auto check = [&](const char* name, DType dtype, const Shape& shape, const Values& values) {
    CAPTURE(name);
    const Tensor tensor = find(all, name);
    REQUIRE(tensor.defined());
    CHECK(tensor.dtype() == dtype);
    CHECK(tensor.shape() == shape);
    CHECK_SAME_BITS(values_of(tensor), values);
  };
  const double inf = std::numeric_limits<double>::infinity();
  check("f32", DType::float32, {2, 3}, {1, -2.5, static_cast<double>(3e-40F), inf, -0.0, 6});
  check("f64", DType::float64, {3}, {0.1, -1e300, 5e-324});
  check("i32", DType::int32, {}, {-7});
  check("empty", DType::int64, {0, 4}, {});
  check("f16", DType::float32, {6}, {1, 65504, 0x1p-24, -0.0, -inf, 0.333251953125});
  check("bf16", DType::float32, {2, 2}, {1.0078125, inf, 0x1p-133, -123.5});
  check("n\xC3\xA4m\"e\n", DType::float32, {1}, {42});
  CHECK(find(all, "i64").to_vector<std::int64_t>() == std::vector<std::int64_t>{std::int64_t{1} << 62, -1});
  const SafetensorsFile file(data("python.safetensors"));
  CHECK(io::find(file.metadata(),
                 "Gr\xC3\xBC\xC3\x9F"
                 "e") == "an\nalle");
  CHECK(io::find(file.metadata(), "format") == "np");
}

TEST_CASE("safetensors: a type that no tensor can hold is an error only when it is asked for") {
  const SafetensorsFile file(data("python_bytes.safetensors"));
  CHECK(file.tensors().size() == 3);
  CHECK(file.tensors()[2].dtype == "U8");
  CHECK(values_of(file.read("f32"))[1] == -2.5);
  CHECK_THROWS_WITH_AS((void)file.read("u8"),
                       "safetensors: tensor \"u8\" is U8, which no Tensor can hold; read the others one by one",
                       DTypeError);
  CHECK_THROWS_WITH_AS((void)load_safetensors(data("python_bytes.safetensors")),
                       "safetensors: tensor \"bool\" is BOOL, which no Tensor can hold; read the others one by one",
                       DTypeError);
}

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

TEST_CASE("SER-03: values at odd addresses of the file") {
  const TemporaryFolder folder;
  const std::string path = folder.file("odd.safetensors");
  const std::string f32 = little_endian(0x3FC00000, 4) + little_endian(0xC0200000, 4),
                    bf16 = little_endian(0x40203F80, 4);
  const std::string f64 = little_endian(0x3FF8000000000000, 8);
  for (std::size_t padding = 0; padding < 9; ++padding) {
    const std::string header = "{" + entry("u", "U8", "[3]", "[0,3]") + "," + entry("f", "F32", "[2]", "[3,11]") + "," +
                               entry("h", "BF16", "[2]", "[11,15]") + "," + entry("d", "F64", "[1]", "[15,23]") + "}" +
                               std::string(padding, ' ');
    write_bytes(path, with_header(header, "uvw" + f32 + bf16 + f64));
    const SafetensorsFile file(path);
    CHECK(values_of(file.read("f")) == Values{1.5, -2.5});
    CHECK(values_of(file.read("h")) == Values{1, 2.5});
    CHECK(values_of(file.read("d")) == Values{1.5});
    CHECK(values_of(file.read("f") + file.read("h")) == Values{2.5, 0});  // through the backend's kernels
  }
  // What we write is aligned, whatever the sizes.
  for (std::size_t length = 1; length < 9; ++length) {
    save_safetensors(
        {{std::string(length, 'n'), ones({3})}, {"d", ones({1}, DType::float64)}, {"i", ones({5}, DType::int32)}},
        path);
    const std::string bytes = read_bytes(path);
    CHECK(static_cast<unsigned char>(bytes[0]) % 8 == 0);
    const SafetensorsFile file(path);
    for (const io::TensorInfo& info : file.tensors()) CHECK(info.begin % (info.dtype == "F64" ? 8 : 4) == 0);
  }
}

TEST_CASE("SER-04: 16-bit patterns survive, and measured cases round as they must") {
  using namespace io::detail;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float b = widen_bfloat16(half), h = widen_binary16(half);
    if (std::isnan(b))
      REQUIRE(std::isnan(widen_bfloat16(narrow<bfloat16>(b))));
    else
      REQUIRE(narrow<bfloat16>(b) == half);
    if (std::isnan(h))
      REQUIRE(std::isnan(widen_binary16(narrow<binary16>(h))));
    else
      REQUIRE(narrow<binary16>(h) == half);
    REQUIRE(narrow<binary16>(static_cast<double>(h)) == narrow<binary16>(h));
    REQUIRE(narrow<bfloat16>(static_cast<double>(b)) == narrow<bfloat16>(b));
  }
  const auto from_bits = [](std::uint32_t bits) { return std::bit_cast<float>(bits); };
  CHECK(std::isnan(widen_bfloat16(narrow<bfloat16>(from_bits(0x7F800001)))));
  CHECK(std::isnan(widen_bfloat16(narrow<bfloat16>(from_bits(0x7FFFFFFF)))));
  CHECK(std::isnan(widen_bfloat16(narrow<bfloat16>(from_bits(0xFF800001)))));
  CHECK(std::isnan(widen_binary16(narrow<binary16>(from_bits(0x7F800001)))));
  CHECK(narrow<bfloat16>(1.005859375F) == 0x3F81);
  CHECK(narrow<bfloat16>(std::numeric_limits<float>::max()) == 0x7F80);
  CHECK(narrow<bfloat16>(-std::numeric_limits<float>::max()) == 0xFF80);
  CHECK(narrow<bfloat16>(std::numeric_limits<float>::denorm_min()) == 0);
  CHECK(narrow<bfloat16>(0x1p-133F) == 1);
  CHECK(narrow<bfloat16>(1e300) == 0x7F80);
  CHECK(narrow<bfloat16>(-5e-324) == 0x8000);
  CHECK(narrow<binary16>(65504.0F) == 0x7BFF);
  CHECK(narrow<binary16>(65519.99F) == 0x7BFF);
  CHECK(narrow<binary16>(65520.0F) == 0x7C00);
  CHECK(narrow<binary16>(5.96e-8F) == 1);
  CHECK(narrow<binary16>(0x1p-25F) == 0);  // a tie: to even
  CHECK(narrow<binary16>(0x1.8p-24F) == 2);
  CHECK(narrow<binary16>(1e-8F) == 0);
  CHECK(narrow<binary16>(-0.0F) == 0x8000);
  CHECK(narrow<binary16>(0x1.FF8p-15F) == 0x3FF);
  CHECK(narrow<binary16>(0x1.FFCp-15F) == 0x400);  // a subnormal that rounds up to the smallest normal
  CHECK(narrow<binary16>(std::numeric_limits<float>::denorm_min()) == 0);
  CHECK(narrow<binary16>(-std::numeric_limits<float>::infinity()) == 0xFC00);
  // A double is rounded once: by way of float these would be ties.
  CHECK(narrow<bfloat16>(1 + 0x1p-8 + 0x1p-40) == 0x3F81);
  CHECK(narrow<binary16>(1 + 0x1p-11 + 0x1p-40) == 0x3C01);
  CHECK(narrow<binary16>(1 + 0x1p-11) == 0x3C00);
}

TEST_CASE("SER-04: rounding to nearest, against the neighbours") {
  using namespace io::detail;
  const auto check = [](auto narrowed, auto widen, float x) {
    if (widen(narrowed) == x) return true;
    const auto distance = [&](std::uint16_t bits) {
      return std::abs(static_cast<double>(widen(bits)) - static_cast<double>(x));
    };
    const auto below = static_cast<std::uint16_t>(narrowed - 1), above = static_cast<std::uint16_t>(narrowed + 1);
    for (const std::uint16_t other : {below, above}) {
      if (!std::isfinite(widen(other)) || std::signbit(widen(other)) != std::signbit(x)) continue;
      if (distance(other) < distance(narrowed)) return false;
      if (distance(other) == distance(narrowed) && narrowed % 2 == 1) return false;
    }
    return true;
  };
  for (std::uint64_t i = 0; i < 200'000; ++i) {
    const auto word = random_word(5, i);
    // All exponents that matter, many values close to ties.
    const auto mantissa =
        static_cast<std::uint32_t>(i % 2 == 0 ? word : (word & 0x7FF000) | 0x1000 | (word >> 40 & 1)) & 0x7FFFFF;
    const auto bits = static_cast<std::uint32_t>(word >> 63 << 31) |
                      static_cast<std::uint32_t>(90 + (word >> 32) % 53) << 23 | mantissa;
    const auto x = std::bit_cast<float>(bits);
    const std::uint16_t h = narrow<binary16>(x), b = narrow<bfloat16>(x);
    if ((h & 0x7FFF) != 0x7C00)
      REQUIRE(check(h, widen_binary16, x));
    else
      REQUIRE(std::abs(x) >= 65520.0F);
    REQUIRE(check(b, widen_bfloat16, x));
  }
}

TEST_CASE("SER-04: float32 and float64 are written as 16-bit types on request") {
  const TemporaryFolder folder;
  const std::string path = folder.file("half.safetensors");
  const NamedTensors saved{{"f", tensor(special_values<float>(50'000, 3), {50'000})},
                           {"d", tensor(special_values<double>(50'000, 4), {100, 500})},
                           {"ids", tensor<std::int64_t>({1, 2})},
                           {"none", zeros({0})}};
  for (const io::Half half : {io::Half::float16, io::Half::bfloat16}) {
    save_safetensors(saved, path, {.dtype = half});
    const SafetensorsFile file(path);
    CHECK(file.tensors()[1].dtype == (half == io::Half::float16 ? "F16" : "BF16"));
    CHECK(file.read("ids").dtype() == DType::int64);
    CHECK(values_of(file.read("ids")) == Values{1, 2});
    CHECK(file.read("none").shape() == Shape{0});
    const auto rounded = [half](double x) {
      using namespace io::detail;
      return half == io::Half::float16 ? widen_binary16(narrow<binary16>(x)) : widen_bfloat16(narrow<bfloat16>(x));
    };
    for (const char* name : {"f", "d"}) {
      const Values before = values_of(find(saved, name));
      std::vector<float> expected;
      for (const double x : before) expected.push_back(rounded(x));
      const Tensor loaded = file.read(name);
      CHECK(loaded.dtype() == DType::float32);
      CHECK(loaded.shape() == find(saved, name).shape());
      CHECK_SAME_BITS(loaded.to_vector<float>(), expected);
    }
  }
}

TEST_CASE("SER-05: views are written as the values they stand for") {
  const TemporaryFolder folder;
  const std::string path = folder.file("views.safetensors");
  const Tensor w = tensor<float>({{1, 2, 3}, {4, 5, 6}});
  save_safetensors({{"w", w},
                    {"transposed", transpose(w, 0, 1)},
                    {"column", slice(w, 1, 1, 2)},
                    {"flat", reshape(w, {6})},
                    {"row", broadcast_to(tensor<float>({7, 8}), {3, 2})}},
                   path);
  const NamedTensors loaded = load_safetensors(path);
  CHECK(values_of(find(loaded, "w")) == Values{1, 2, 3, 4, 5, 6});
  CHECK(values_of(find(loaded, "transposed")) == Values{1, 4, 2, 5, 3, 6});
  CHECK(find(loaded, "transposed").shape() == Shape{3, 2});
  CHECK(values_of(find(loaded, "column")) == Values{2, 5});
  CHECK(values_of(find(loaded, "flat")) == Values{1, 2, 3, 4, 5, 6});
  CHECK(find(loaded, "flat").shape() == Shape{6});
  CHECK(values_of(find(loaded, "row")) == Values{7, 8, 7, 8, 7, 8});
}

TEST_CASE("SER-05: tied weights are written once and come back tied") {
  const TemporaryFolder folder;
  const std::string path = folder.file("tied.safetensors");
  struct Model : layers::Module {
    layers::Embedding embed{{.num_embeddings = 6, .embedding_dim = 4}};
    layers::Linear head{{.in_features = 4, .out_features = 6, .bias = false}};
    Model() {
      head.weight = embed.weight;
      register_module("embed", embed);
      register_module("head", head);
    }
  };
  Model model, other;
  save_safetensors(model.state_dict(), path, {.metadata = {{"format", "pt"}}});
  const SafetensorsFile file(path);
  REQUIRE(file.tensors().size() == 2);
  CHECK(file.tensors()[0].tied_to.empty());
  CHECK(file.tensors()[1].name == "head.weight");
  CHECK(file.tensors()[1].tied_to == "embed.weight");
  CHECK(values_of(file.read("head.weight")) == values_of(model.embed.weight));
  CHECK(file.metadata().size() == 1);
  CHECK(read_bytes(path).find(R"({"__metadata__":{"format":"pt","head.weight":"embed.weight"},"embed.weight":{)") == 8);
  CHECK(read_bytes(path).size() < 8 + 200 + 6 * 4 * 4);

  const NamedTensors loaded = load_safetensors(path);
  CHECK(names_of(loaded) == Names{"embed.weight", "head.weight"});
  CHECK(&loaded[0].tensor.storage() == &loaded[1].tensor.storage());
  // What was loaded is written as it was.
  const std::string again = folder.file("again.safetensors");
  save_safetensors(loaded, again, {.metadata = file.metadata()});
  CHECK(read_bytes(again) == read_bytes(path));

  other.load_state_dict(loaded);
  CHECK(other.head.weight.is(other.embed.weight));
  const Tensor ids = tensor<std::int64_t>({1, 3, 3});
  for (Model* trained : {&model, &other}) {
    optim::SGD optimizer(trained->named_parameters(), {.lr = 0.5});
    Tape tape;
    tape.backward(mean(square(trained->head(trained->embed(ids)))));
    optimizer.step();
  }
  CHECK(values_of(other.embed.weight) == values_of(model.embed.weight));
  CHECK(values_of(other.head.weight) == values_of(other.embed.weight));
}

TEST_CASE("SER-05: tied weights as PyTorch's users write them") {
  const NamedTensors loaded = load_safetensors(data("torch_tied.safetensors"));
  CHECK(names_of(loaded) == Names{"embed.weight", "head.weight"});
  CHECK(values_of(loaded[0].tensor) == Values{0, 1, 2, 3, 4, 5});
  CHECK(&loaded[0].tensor.storage() == &loaded[1].tensor.storage());
}

TEST_CASE("SER-06: a file that is cut anywhere says that it is shorter than it should be") {
  const TemporaryFolder folder;
  const std::string path = folder.file("cut.safetensors");
  save_safetensors({{"a", ones({4})}, {"b", ones({3}, DType::float64)}}, path, {.metadata = {{"k", "v"}}});
  const std::string whole = read_bytes(path);
  const std::size_t values = whole.size() - 40;
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < values; ++i) places.push_back(i);
  for (const std::size_t i : {0, 1, 23, 24, 39}) places.push_back(values + i);
  for (const std::size_t place : places) {
    CAPTURE(place);
    write_bytes(path, whole.substr(0, place));
    const std::size_t needed = place < 8 ? 8 : place < values ? values : whole.size();
    CHECK(error_of([&] { (void)load_safetensors(path); }) ==
          fmt::format("safetensors: cannot read \"{}\": file shorter than header says: need {}, have {}", path, needed,
                      place));
  }
  write_bytes(path, whole);
  CHECK(load_safetensors(path).size() == 2);
}

namespace {

/// A memory that fails to give its values back, as a device that is lost.
struct LostMemory final : Memory {
  LostMemory() : Memory("lost") {}
  bool host_visible() const override { return false; }
  void upload(void* /*to*/, const void* /*host*/, std::size_t /*bytes*/) override {}
  void download(void* /*host*/, const void* /*from*/, std::size_t /*bytes*/) override {
    throw BackendError("lost memory: read-back failed");
  }
  void copy(void* /*to*/, const void* /*from*/, std::size_t /*bytes*/) override {}

 protected:
  void* system_allocate(std::size_t /*bytes*/) override { throw BackendError("lost memory: no"); }
  void system_release(void* /*data*/, std::size_t /*bytes*/) noexcept override {}
};

}  // namespace

TEST_CASE("SER-06: whatever fails while a file is written, the old one stays") {
  const TemporaryFolder folder;
  const std::string path = folder.file("a.safetensors");
  save_safetensors({{"good", full({1000}, 3.0)}}, path);
  const std::string before = read_bytes(path);
  const auto check_old = [&] {
    CHECK(read_bytes(path) == before);
    CHECK(folder.count() == 1);
    CHECK(values_of(load_safetensors(path)[0].tensor) == Values(1000, 3.0));
  };

  LostMemory lost;
  float somewhere[4] = {};
  const Tensor unreadable = detail::TensorAccess::make(Storage::borrow(lost, somewhere, sizeof(somewhere)), {4},
                                                       DType::float32, current_backend());
  CHECK_THROWS_WITH_AS(save_safetensors({{"a", ones({1000})}, {"b", unreadable}}, path),
                       "lost memory: read-back failed", BackendError);
  check_old();

  // No room: the system refuses to let the file grow.
  const Tensor large = ones({100'000});
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{100'000, 100'000};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(2);
    const std::string text = error_of([&] { save_safetensors({{"large", large}}, path); });
    _exit(text == "safetensors: cannot write \"" + path + "\": File too large" ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  check_old();

  CHECK(error_of([&] {
          save_safetensors({{"a", ones({1})}}, folder.file("none/a.safetensors"));
        }) == "safetensors: cannot write \"" + folder.file("none/a.safetensors") + "\": No such file or directory");
  CHECK(error_of([&] {
          save_safetensors({{"a", ones({1})}}, folder.path.string());
        }) == "safetensors: cannot write \"" + folder.path.string() + "\": Is a directory");
  CHECK(error_of([&] {
          save_safetensors({{"a", ones({1})}}, "/dev/full");
        }) == "safetensors: cannot write \"/dev/full\": No space left on device");
  check_old();
}

TEST_CASE("SER-06: a replaced file keeps its permissions and the links that lead to it; threads do not mix") {
  const TemporaryFolder folder;
  const std::string path = folder.file("a.safetensors"), link = folder.file("link");
  save_safetensors({{"a", ones({1})}}, path);
  namespace fs = std::filesystem;
  fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
  fs::create_symlink("a.safetensors", link);
  save_safetensors({{"b", ones({1})}}, link);
  CHECK(fs::is_symlink(link));
  CHECK(fs::status(path).permissions() == (fs::perms::owner_read | fs::perms::owner_write));
  CHECK(names_of(load_safetensors(path)) == Names{"b"});

  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&path, i] {
      const NamedTensors mine{{"t" + std::to_string(i), full({10'000}, i)}};
      for (int round = 0; round < 5; ++round) save_safetensors(mine, path);
    });
  for (std::thread& thread : threads) thread.join();
  const NamedTensors loaded = load_safetensors(path);
  REQUIRE(loaded.size() == 1);
  CHECK(values_of(loaded[0].tensor) == Values(10'000, loaded[0].name[1] - '0'));
  CHECK(folder.count() == 2);
}
