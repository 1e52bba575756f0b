/// The 16-bit floating types of files.

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "../framework/io/half.hpp"
#include "file_tools.hpp"
#include "same_bits.hpp"
#include "tensor_tools.hpp"
#include "wengert/io.hpp"

using namespace wengert;
using namespace wengert::testing;
using io::SafetensorsFile;
using io::save_safetensors;

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
