// The scalar definitions of wengert/bits.hpp themselves, and the numbers that docs/bits.md works.

#include "wengert/bits.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

#include "same_bits.hpp"
#include "wengert/kernels.hpp"

namespace wg = wengert;
namespace bits = wengert::bits;

namespace {

bool documented(const std::string& line) {
  static const std::string text = [] {
    std::string content;
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(WENGERT_BITS_MD, "r"), std::fclose);
    REQUIRE(file);
    for (int c; (c = std::fgetc(file.get())) != EOF;) content.push_back(static_cast<char>(c));
    return content;
  }();
  INFO("docs/bits.md lacks the line: ", line);
  const bool found = text.find("\n" + line + "\n") != std::string::npos;
  CHECK(found);
  return found;
}

std::string sum_of(int n, const auto& term) { return fmt::format("{:.9g}", bits::tree_sum<float>(n, term)); }

}  // namespace

TEST_CASE("Philox4x32-10 gives Random123's known answers") {
  const auto check = [](std::uint64_t key, std::uint64_t high, std::uint64_t low,
                        std::initializer_list<std::uint32_t> words) {
    const bits::Words got = bits::philox(key, high, low);
    CHECK(std::equal(words.begin(), words.end(), got.word));
  };
  const std::uint64_t all = ~std::uint64_t{0};
  check(0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  check(all, all, all, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  check(0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88, {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("a sum has the shape that docs/bits.md gives it") {
  // Every addition of two sums is written down: "(a+b)" for terms t0, t1, ...
  struct Text {
    std::string text;
    explicit Text(int = 0) : text("zero") {}  // T(0), the sum of nothing
    explicit Text(std::string t) : text(std::move(t)) {}
    Text operator+(const Text& other) const { return Text("(" + text + "+" + other.text + ")"); }
  };
  const auto sum = [](std::int64_t n) {
    return bits::tree_sum<Text>(n, [](std::int64_t i) { return Text(std::to_string(i)); }).text;
  };
  const auto block = [](int first, int last) {  // left to right
    std::string out = std::to_string(first);
    for (int i = first + 1; i < last; ++i) out = "(" + out + "+" + std::to_string(i) + ")";
    return out;
  };
  const auto join = [](const std::string& a, const std::string& b) { return "(" + a + "+" + b + ")"; };
  const std::string b0 = block(0, 32), b1 = block(32, 64), b2 = block(64, 96), b3 = block(96, 128),
                    b4 = block(128, 160);
  CHECK(sum(0) == "zero");
  CHECK(sum(1) == "0");
  CHECK(sum(3) == "((0+1)+2)");
  CHECK(sum(31) == block(0, 31));
  CHECK(sum(32) == b0);
  CHECK(sum(33) == join(b0, "32"));
  CHECK(sum(64) == join(b0, b1));
  CHECK(sum(65) == join(join(b0, b1), "64"));
  CHECK(sum(97) == join(join(b0, b1), join(b2, "96")));
  CHECK(sum(128) == join(join(b0, b1), join(b2, b3)));
  CHECK(sum(160) == join(join(join(b0, b1), join(b2, b3)), b4));
  CHECK(sum(224) == join(join(join(b0, b1), join(b2, b3)), join(join(b4, block(160, 192)), block(192, 224))));
}

TEST_CASE("a sum keeps the sign of a single zero, and the sum of nothing is +0") {
  const auto zeros = [](std::int64_t n) { return bits::tree_sum<float>(n, [](std::int64_t) { return -0.0f; }); };
  CHECK(wg::testing::same_bits(zeros(0), 0.0f));
  CHECK(wg::testing::same_bits(zeros(1), -0.0f));
  CHECK(wg::testing::same_bits(zeros(100), -0.0f));
  CHECK(wg::testing::same_bits(bits::tree_sum<float>(2, [](std::int64_t i) { return i == 0 ? -0.0f : 0.0f; }), 0.0f));
}

TEST_CASE("a complete block may be summed by somebody else") {
  const auto values = wg::testing::random_values<float>(32 * 7 + 5, 3);
  bits::TreeSum<float> sum;
  std::size_t i = 0;
  for (; i + 32 <= values.size(); i += 32) {
    float block = values[i];
    for (std::size_t j = 1; j < 32; ++j) block += values[i + j];
    sum.add_block(block);
  }
  for (; i < values.size(); ++i) sum.add(values[i]);
  const float whole = bits::tree_sum<float>(static_cast<std::int64_t>(values.size()),
                                            [&](std::int64_t k) { return values[static_cast<std::size_t>(k)]; });
  CHECK(wg::testing::same_bits(sum.result(), whole));
}

TEST_CASE("EMB-05: 200,000 repeats lose nothing that matters") {
  const float sum = bits::tree_sum<float>(200'000, [](std::int64_t) { return 0.1f; });
  CHECK(std::abs(static_cast<double>(sum) / (200'000 * static_cast<double>(0.1f)) - 1.0) < 1e-6);
}

TEST_CASE("thresholds and scales of dropout") {
  CHECK(bits::keep_threshold(0.0) == 0);
  CHECK(bits::keep_threshold(-0.0) == 0);
  CHECK(bits::keep_threshold(1e-9) == 1);
  CHECK(bits::keep_threshold(0.1) == 6554);
  CHECK(bits::keep_threshold(0.5) == 32768);
  CHECK(bits::keep_threshold(0.9) == 58982);
  CHECK(bits::keep_threshold(2.5 / 65536) == 3);
  CHECK(bits::keep_threshold(1 - 1e-9) == 65535);
  CHECK(bits::keep_threshold(1.0) == 65536);
  CHECK(bits::keep_scale(0.75) == 4.0);
  CHECK(bits::keep_scale(0.0) == 1.0);
  CHECK(bits::keep_scale(1.0) == 0.0);
  CHECK(bits::dropout_counters(0) == 0);
  CHECK(bits::dropout_counters(1) == 16);
  CHECK(bits::dropout_counters(128) == 16);
  CHECK(bits::dropout_counters(129) == 32);
}

TEST_CASE("every 16 bits of the generator are used once") {
  // 256 elements: two groups of 16 counters; the 16-bit values are the halves of their words, in another order.
  std::vector<std::uint32_t> drawn, words;
  const bits::Drawing drawing{.p = 0.5, .seed = 9, .stream = 4, .base = 1000};
  for (std::int64_t e = 0; e < 256; ++e) drawn.push_back(drawing.bits(e));
  for (std::uint64_t counter = 1000; counter < 1032; ++counter)
    for (const std::uint32_t word : bits::philox(9, 4, counter).word) {
      words.push_back(word & 0xFFFF);
      words.push_back(word >> 16);
    }
  std::sort(drawn.begin(), drawn.end());
  std::sort(words.begin(), words.end());
  CHECK(drawn == words);
}

TEST_CASE("powers by squaring agree with repeated multiplication") {
  CHECK(bits::power(0.9, 0) == 1.0);
  CHECK(bits::power(0.9, 1) == 0.9);
  CHECK(bits::power(2.0, 62) == std::ldexp(1.0, 62));
  CHECK(bits::power(0.999, 1000) == doctest::Approx(std::pow(0.999, 1000)).epsilon(1e-14));
  CHECK(bits::power(0.9, 1'000'000) == 0.0);
}

TEST_CASE("docs/bits.md: sums") {
  const auto one_large = [](std::int64_t i) { return i == 0 ? 16777216.0f : 1.0f; };
  for (const int n : {32, 33, 64, 97}) CHECK(documented(fmt::format("n = {:6}: {}", n, sum_of(n, one_large))));
  const auto tenth = [](std::int64_t) { return 0.1f; };
  CHECK(documented("fixed tree: " + sum_of(200'000, tenth)));
  float running = 0;
  for (int i = 0; i < 200'000; ++i) running += 0.1f;
  CHECK(documented(fmt::format("left to right: {:.9g}", running)));
}

TEST_CASE("docs/bits.md: dropout") {
  const bits::Drawing drawing{.p = 0.5, .seed = 42, .stream = 0, .base = 0};
  const bits::Words words = bits::philox(42, 0, 0);
  CHECK(documented(fmt::format(
      "Worked for seed 42, stream 0, base 0 (words of counter 0: {:08x} {:08x} {:08x} {:08x}):", words.word[0],
      words.word[1], words.word[2], words.word[3])));
  for (const int e : {0, 1, 15, 16, 32, 127, 128})
    CHECK(documented(fmt::format("element {:3}: counter {:2} slot {} bits {:5}", e, 16 * (e / 128) + e % 16,
                                 (e / 16) % 8, drawing.bits(e))));
  for (const double p : {0.5, 0.1}) {
    std::uint8_t mask[16];
    bits::keep_mask({.p = p, .seed = 42, .stream = 0, .base = 0}, 16, mask);
    CHECK(documented(fmt::format("p = {}: threshold {:5}, first two bytes of the mask {:02x} {:02x}", p,
                                 bits::keep_threshold(p), mask[0], mask[1])));
  }
}

TEST_CASE("docs/bits.md: optimiser steps") {
  float p = 1, b = 0;
  wg::SgdStep sgd{.lr = 0.1, .momentum = 0.9, .dampening = 0, .weight_decay = 0.01, .nesterov = true, .first = true};
  for (const float g : {0.5f, -0.25f}) {
    bits::sgd_element(bits::SgdScalars<float>(sgd), g, p, &b);
    sgd.first = false;
    CHECK(documented(fmt::format("b {:.9g} p {:.9g}", b, p)));
  }
  float q = 1, m = 0, v = 0;
  wg::AdamStep adam{.lr = 0.001, .weight_decay = 0.01, .decoupled = true};
  for (const float g : {0.5f, -0.25f}) {
    const bits::AdamScalars<float> s(adam);
    bits::adam_element(s, g, q, m, v);
    ++adam.step;
    CHECK(documented(fmt::format("step {:.9g} r {:.9g} m {:.9g} v {:.9g} p {:.9g}", s.step, s.root, m, v, q)));
  }
}
