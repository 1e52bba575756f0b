// Tensors as text, the way NumPy prints arrays.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ostream>

#include "wengert/tensor.hpp"

namespace wengert {

namespace {

constexpr std::int64_t summarize_above = 1000;  // elements
constexpr std::int64_t edge = 3;                // shown at each end of a long axis

class Printer {
 public:
  explicit Printer(const Tensor& tensor) : shape_(tensor.shape()), long_(tensor.numel() > summarize_above) {
    const bool floating = is_floating(tensor.dtype());
    if (floating)
      reals_ = tensor.to_vector<double>();
    else
      integers_ = tensor.to_vector<std::int64_t>();
    visit([&](std::int64_t i) {
      scientific_ = scientific_ || (floating && wants_exponent(reals_[static_cast<std::size_t>(i)]));
    });
    visit([&](std::int64_t i) { width_ = std::max(width_, element(i).size()); });
  }

  std::string str() { return shape_.numel() == 0 ? "[]" : axis(0, 0); }

 private:
  static bool wants_exponent(double value) {
    const double size = std::abs(value);
    return std::isfinite(value) && size > 0.0 && (size >= 1e6 || size < 1e-4);
  }

  std::string element(std::int64_t i) const {
    const auto at = static_cast<std::size_t>(i);
    if (!integers_.empty()) return fmt::format("{}", integers_[at]);
    return scientific_ ? fmt::format("{:.4e}", reals_[at]) : fmt::format("{:.4f}", reals_[at]);
  }

  bool shortened(std::int64_t axis) const { return long_ && shape_[axis] > 2 * edge; }

  // Calls f with the flat index of every element that is shown.
  template <class F>
  void visit(F f, std::int64_t axis = 0, std::int64_t offset = 0) {
    if (shape_.numel() == 0) return;
    if (axis == shape_.rank()) return f(offset);
    const std::int64_t inner = shape_.product(axis + 1, shape_.rank());
    for (std::int64_t i = 0; i < shape_[axis]; ++i)
      if (!shortened(axis) || i < edge || i >= shape_[axis] - edge) visit(f, axis + 1, offset + i * inner);
  }

  std::string axis(std::int64_t axis, std::int64_t offset) {
    if (axis == shape_.rank()) return fmt::format("{:>{}}", element(offset), width_);
    const bool last = axis + 1 == shape_.rank();
    const std::int64_t inner = shape_.product(axis + 1, shape_.rank());
    const std::string separator = last ? ", " : ",\n" + std::string(static_cast<std::size_t>(axis) + 1, ' ');
    std::string text = "[";
    for (std::int64_t i = 0; i < shape_[axis]; ++i) {
      if (i > 0) text += separator;
      if (shortened(axis) && i == edge) {
        text += "..." + separator;
        i = shape_[axis] - edge;
      }
      text += this->axis(axis + 1, offset + i * inner);
    }
    return text + "]";
  }

  Shape shape_;
  bool long_;
  bool scientific_ = false;
  std::size_t width_ = 0;
  std::vector<double> reals_;
  std::vector<std::int64_t> integers_;
};

}  // namespace

std::string Tensor::str() const {
  if (!defined()) return "undefined tensor";
  return fmt::format("{}\nshape {}, {}, {}", Printer(*this).str(), shape().str(), name_of(dtype()), backend().name());
}

std::ostream& operator<<(std::ostream& stream, const Tensor& tensor) { return stream << tensor.str(); }

}  // namespace wengert
