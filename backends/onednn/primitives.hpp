#pragma once
// oneDNN's primitives, made once and kept. Making one can cost as much as running it.

#include <array>
#include <cstdint>

namespace wengert::onednn {

// Everything that a primitive depends on.
struct Key {
  enum class Kind : std::uint8_t { add, product };
  Kind kind = Kind::add;
  bool trans_a = false, trans_b = false, share_a = false, share_b = false, bias = false;
  int threads = 1;
  float alpha = 1.0F, beta = 0.0F;
  std::array<std::int64_t, 4> extents{};  // add: outer, inner, 1 if b has no outer axis; product: batch, m, n, k

  friend bool operator==(const Key&, const Key&) = default;
};

// Runs the primitive of `key` on these operands; those that it does not have are null.
void run(const Key& key, const float* a, const float* b, const float* bias, float* out);

}  // namespace wengert::onednn
