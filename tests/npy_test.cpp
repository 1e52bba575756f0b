/// .npy files: every variant that NumPy writes, and what is refused.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "file_tools.hpp"
#include "same_bits.hpp"
#include "tensor_tools.hpp"
#include "wengert/npy.hpp"

using namespace wengert;
using namespace wengert::testing;
using io::load_npy;
using io::save_npy;

namespace {

std::string data(const std::string& name) { return data_file(name + ".npy"); }

/// A file of version `major` with this dictionary.
std::string file_of(const std::string& header, const std::string& values, int major = 1) {
  return "\x93NUMPY" + std::string{static_cast<char>(major), '\0'} + little_endian(header.size(), major == 1 ? 2 : 4) +
         header + values;
}
std::string header_of(const std::string& descr, const std::string& shape, const std::string& order = "False") {
  return fmt::format("{{'descr': {}, 'fortran_order': {}, 'shape': {}, }}\n", descr, order, shape);
}

const Values one_to_six{1, 2, 3, 4, 5, 6};

}  // namespace

TEST_CASE("SER-09: what NumPy wrote: types, byte orders, axis orders, versions") {
  const double inf = std::numeric_limits<double>::infinity();
  Values cube;
  for (int i = 0; i < 24; ++i) cube.push_back(i);
  const struct {
    const char* name;
    DType dtype;
    Shape shape;
    Values values;
  } cases[] = {
      {"c_f4", DType::float32, {2, 3}, one_to_six},
      {"fortran_f4", DType::float32, {2, 3}, one_to_six},
      {"fortran_cube_i8", DType::int64, {2, 3, 4}, cube},
      {"big_f4", DType::float32, {2, 3}, one_to_six},
      {"big_fortran_f8", DType::float64, {2, 3}, one_to_six},
      {"big_i8", DType::int64, {2, 3}, {-3, -2, -1, 0, 1, 2}},
      {"bool", DType::int32, {3}, {1, 0, 1}},
      {"f2", DType::float32, {4}, {1, -65504, 0x1p-24, inf}},
      {"i1", DType::int32, {2}, {-128, 127}},
      {"u1", DType::int32, {2}, {0, 255}},
      {"i2", DType::int32, {2}, {-32768, 32767}},
      {"big_u2", DType::int32, {2}, {1, 65535}},
      {"u4", DType::int64, {1}, {4294967295.0}},
      {"i4", DType::int32, {2}, {-2147483648.0, 2147483647.0}},
      {"scalar", DType::float64, {}, {2.5}},
      {"vector", DType::float64, {3}, {0, 1, 2}},
      {"empty", DType::float32, {0, 4}, {}},
      {"version1", DType::float32, {2, 3}, one_to_six},
      {"version2", DType::float32, {2, 3}, one_to_six},
      {"version3", DType::float32, {2, 3}, one_to_six},
  };
  for (const auto& c : cases) {
    CAPTURE(c.name);
    const Tensor tensor = load_npy(data(c.name));
    CHECK(tensor.dtype() == c.dtype);
    CHECK(tensor.shape() == c.shape);
    CHECK(values_of(tensor) == c.values);
    CHECK(&tensor.backend() == &current_backend());
  }
  CHECK(load_npy(data("u8")).item<std::int64_t>() == INT64_MAX);
}

TEST_CASE("SER-09: types without numbers, or without a place here, are named") {
  const auto refused = [](const char* name, const std::string& reason) {
    CHECK(error_of([&] { (void)load_npy(data(name)); }) == "npy: cannot read \"" + data(name) + "\": " + reason);
  };
  const std::string none = " is none of the types that can be read: bool, integers, float16, float32, float64";
  refused("object", "descr \"|O\"" + none);
  refused("text", "descr \"<U4\"" + none);
  refused("complex", "descr \"<c8\"" + none);
  refused("too_large", "a uint64 above 2^63 - 1, which int64 cannot hold");
  const std::string text = error_of([] { (void)load_npy(data("structured")); });
  CHECK(text.find("a structured type; only plain numbers can be read: descr \"[('a', '<f4'), ('b', '<i4')]") !=
        std::string::npos);
}

TEST_CASE("SER-09: headers that look different and mean the same") {
  const TemporaryFolder folder;
  const std::string path = folder.file("a.npy");
  const std::string six = little_endian(0x3F800000, 4) + little_endian(0x40000000, 4);
  const auto reads = [&](const std::string& bytes) {
    write_bytes(path, bytes);
    const Tensor tensor = load_npy(path);
    CHECK(tensor.shape() == Shape{2});
    CHECK(values_of(tensor) == Values{1, 2});
  };
  reads(file_of("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", six));
  reads(file_of("{'shape':(2,),'descr':'<f4','fortran_order':False,}   ", six));
  reads(file_of("{\"fortran_order\": True, \"shape\": (2,), \"descr\": \"<f4\"}\n", six));
  reads(file_of(" { 'shape' : ( 2L , ) ,\n'descr':'=f4' , 'fortran_order' : False } \n", six));
  reads(file_of("{'descr': 'f4', 'fortran_order': False, 'shape': (2,), }", six));
  for (const int major : {1, 2, 3})
    for (const std::size_t length : {300, 65'535, 70'000}) {
      if (major == 1 && length > 65'535) continue;
      CAPTURE(major);
      CAPTURE(length);
      std::string header = header_of("'<f4'", "(2,)");
      header.insert(header.size() - 1, length - header.size(), ' ');
      reads(file_of(header, six, major));
    }
  // A Fortran-ordered tensor of many axes, one of them of length 1, and an empty one.
  std::string values;
  for (int i = 0; i < 12; ++i) values += little_endian(static_cast<std::uint64_t>(i), 4);
  write_bytes(path, file_of(header_of("'<i4'", "(2, 1, 3, 2)", "True"), values));
  CHECK(values_of(load_npy(path)) == Values{0, 6, 2, 8, 4, 10, 1, 7, 3, 9, 5, 11});
  write_bytes(path, file_of(header_of("'>i8'", "(3, 0, 2)", "True"), ""));
  CHECK(load_npy(path).shape() == Shape{3, 0, 2});
}

TEST_CASE("SER-09: headers that are wrong") {
  const TemporaryFolder folder;
  const std::string path = folder.file("a.npy"), eight(8, 'x');
  const auto refused = [&](const std::string& bytes, const std::string& reason) {
    write_bytes(path, bytes);
    const std::int64_t before = host_memory().stats().in_use;
    CHECK(error_of([&] { (void)load_npy(path); }) == "npy: cannot read \"" + path + "\": " + reason);
    CHECK(host_memory().stats().in_use == before);
  };
  const auto header = [&](const std::string& text, const std::string& reason) {
    CAPTURE(text);
    refused(file_of(text, eight), "the header is not what NumPy writes: " + reason);
  };
  refused("", "file shorter than header says: need 10, have 0");
  refused(eight + eight, "it does not begin as .npy files do");
  refused(file_of("{}", "", 4), "unknown version 4.0");
  refused(file_of("{}", "", 0), "unknown version 0.0");
  refused("\x93NUMPY" + std::string("\x02\0\xFF\xFF\xFF\xFF", 6) + "{}",
          "a header of 4294967295 bytes; at most 1048576 are allowed");
  refused("\x93NUMPY" + std::string("\x01\0\xFF\xFF", 4) + "{}", "file shorter than header says: need 65545, have 12");

  header("", "'{' expected before \"\"");
  header("[]", "'{' expected before \"[]\"");
  header("{", "'\"' expected before \"\"");
  header("{}", "descr, fortran_order or shape is missing before \"\"");
  header("{'descr': '<f4', 'shape': (2,)}", "descr, fortran_order or shape is missing before \"\"");
  header("{'descr': '<f4', 'descr': '<f4'}", "a key twice before \"'<f4'}\"");
  header("{'descr': '<f4", "a string without an end, or with a backslash before \"<f4\"");
  header("{'descr': '\\x3cf4'", "a string without an end, or with a backslash before \"\\\\x3cf4'\"");
  header("{'other': 1}", "unknown key \"other\" before \"1}\"");
  header("{'fortran_order': false}", "'False' expected before \"false}\"");
  header("{'fortran_order': 0}", "'False' expected before \"0}\"");
  header("{'shape': 2}", "'(' expected before \"2}\"");
  header("{'shape': (2)}", "a shape that is no tuple before \"}\"");
  header("{'shape': (2 3)}", "',' expected before \"3)}\"");
  header("{'shape': (-2,)}", "an extent from 0 to 2^63 - 1 expected before \"-2,)}\"");
  header("{'shape': (2.0,)}", "',' expected before \".0,)}\"");
  header("{'shape': (9223372036854775808,)}",
         "an extent from 0 to 2^63 - 1 expected before \"9223372036854775808,)}\"");
  header("{'shape': (None,)}", "an extent from 0 to 2^63 - 1 expected before \"None,)}\"");
  header("{'shape': (,)}", "an extent from 0 to 2^63 - 1 expected before \",)}\"");
  header("{'descr': '<f4' 'shape': (2,)}", "'}' expected before \"'shape': (2,)}\"");
  header(header_of("'<f4'", "(2,)") + "x", "nothing more expected before \"x\"");

  refused(file_of(header_of("'<f4'", "(4294967296, 4294967296)"), eight), "a shape of more than 2^63 - 1 elements");
  refused(file_of(header_of("'<f4'", "(9223372036854775807,)"), eight), "a shape of more than 2^64 - 1 bytes");
  refused(file_of(header_of("'<f4'", "(0, 4294967296, 4294967296)"), ""), "a shape of more than 2^63 - 1 elements");
  refused(file_of(header_of("'<f4'", "(1, 1, 1, 1, 1, 1, 1, 1, 2)"), eight), "9 axes; a Tensor has at most 8");
  refused(file_of(header_of("'<f4'", "(3,)"), eight), "file shorter than header says: need 80, have 76");
  refused(file_of(header_of("'<f4'", "(1,)"), eight), "4 bytes behind the last value");
  for (const char* descr : {"f16", "<f1", "", "<", "<<f4", "|S3", "<m8[s]", "?"})
    refused(file_of(header_of(fmt::format("'{}'", descr), "(1,)"), eight),
            fmt::format("descr \"{}\" is none of the types that can be read: bool, integers, float16, float32, float64",
                        descr));
}

TEST_CASE("SER-06, SER-09: a file that is cut anywhere is refused, and a failed save leaves the old one") {
  const TemporaryFolder folder;
  const std::string path = folder.file("cut.npy"), whole = read_bytes(data("version2"));
  for (std::size_t place = 0; place < whole.size(); ++place) {
    CAPTURE(place);
    write_bytes(path, whole.substr(0, place));
    CHECK(error_of([&] { (void)load_npy(path); }).find("file shorter than header says: need ") != std::string::npos);
  }
  write_bytes(path, whole);
  CHECK_THROWS_AS(save_npy(Tensor(), path), Error);
  CHECK(read_bytes(path) == whole);
  CHECK_THROWS_AS(save_npy(ones({1}), folder.file("none/a.npy")), IoError);
  CHECK_THROWS_AS(save_npy(ones({1000}), "/dev/full"), IoError);
  CHECK(folder.count() == 1);
}

TEST_CASE("npy: what is written comes back, byte for byte as NumPy writes it") {
  const TemporaryFolder folder;
  const std::string path = folder.file("a.npy");
  for (const char* name : {"c_f4", "i4", "scalar", "vector", "empty"}) {
    CAPTURE(name);
    save_npy(load_npy(data(name)), path);
    CHECK(read_bytes(path) == read_bytes(data(name)));
  }
  const auto round_trip = [&](const Tensor& tensor) {
    save_npy(tensor, path);
    const std::string bytes = read_bytes(path);
    CHECK((bytes.size() - tensor.storage().bytes()) % 64 == 0);
    for (const std::string& name : backend_names()) {
      if (!backend_available(name)) continue;
      CAPTURE(name);
      const Tensor loaded = load_npy(path, backend(name));
      CHECK(loaded.backend().name() == name);
      CHECK(loaded.dtype() == tensor.dtype());
      CHECK(loaded.shape() == tensor.shape());
      CHECK_SAME_BITS(values_of(loaded), values_of(tensor));
    }
  };
  round_trip(tensor(special_values<float>(105, 1), {3, 5, 7}));
  round_trip(tensor(special_values<double>(20'001, 2), {20'001}));
  round_trip(tensor<std::int64_t>({{INT64_MIN, 1}, {2, INT64_MAX}}));
  round_trip(tensor<std::int32_t>({INT32_MIN}));
  round_trip(zeros({1, 0, 3}));
  round_trip(ones({1, 2, 1, 2, 1, 2, 1, 2}));
  round_trip(full({}, 0.1, DType::float64));
}
