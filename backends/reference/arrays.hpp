#pragma once
// Small tools of the reference kernels.

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "wengert/detail/xtensor_headers.hpp"
#include "wengert/storage.hpp"

namespace wengert::reference {

// `count` values as an xtensor array with one axis. Expressions over such arrays compile to plain vectorised loops and
// allocate nothing, which those of several axes do not.
template <class T>
auto flat(T* data, std::int64_t count) {
  const auto size = static_cast<std::size_t>(count);
  return xt::adapt(std::move(data), size, xt::no_ownership(), std::array<std::size_t, 1>{size});
}

// out[i] = f(operands[i]...); an operand is an array made by `flat` or a number.
template <class T, class F, class... Operands>
void assign(T* out, std::int64_t count, F f, Operands&&... operands) {
  auto result = flat(out, count);
  xt::noalias(result) = xt::make_lambda_xfunction(std::move(f), std::forward<Operands>(operands)...);
}

// Scratch memory of one kernel call, from the cache of the host's memory.
template <class T>
class Workspace {
 public:
  explicit Workspace(std::int64_t count)
      : block_(host_memory().allocate(static_cast<std::size_t>(count) * sizeof(T))) {}
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  ~Workspace() { host_memory().release(block_); }
  T* data() const { return static_cast<T*>(block_.data); }

 private:
  Memory::Block block_;
};

}  // namespace wengert::reference
