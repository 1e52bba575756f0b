// Fill and strided copies on several threads. Types that have to be converted go the reference backend's way.

#include <algorithm>
#include <cstring>

#include "parallel.hpp"
#include "table.hpp"
#include "wengert/backends/xsimd.hpp"
#include "wengert/walk.hpp"

namespace wengert::xsimd_backend {

void Kernels::fill(Tensor& out, double value) {
  if (out.dtype() != DType::float32) return reference::Kernels<float>::fill(out, value);
  auto* to = write<float>(out);
  const auto single = static_cast<float>(value);
  parallel(out.numel(), 16, 4 * out.numel(),
           [&](std::int64_t begin, std::int64_t end) { std::fill(to + begin, to + end, single); });
}

void Kernels::copy_strided(const Shape& extent, const Tensor& in, const StridedView& from, Tensor& out,
                           const StridedView& to) {
  const Walk walk(extent, from, to);
  const std::int64_t size = static_cast<std::int64_t>(size_of(out.dtype()));
  const bool runs = walk.a[0] == 1 && walk.b[0] == 1;  // of neighbours in both
  const bool transposes = size == 4 && walk.a[1] == 1 && walk.b[0] == 1;
  if (in.dtype() != out.dtype() || extent.numel() == 0 || !(runs || transposes))
    return reference::Kernels<float>::copy_strided(extent, in, from, out, to);

  const auto* source = static_cast<const char*>(in.storage().read()) + from.offset * size;
  auto* target = static_cast<char*>(out.storage().write()) + to.offset * size;
  // The two innermost axes make a plane of `lines` lines, which is copied some lines at a time.
  const std::int64_t count = walk.extents[0], lines = walk.extents[1], planes = extent.numel() / (count * lines);
  const std::int64_t together = std::min(lines, runs ? std::max<std::int64_t>(1, 4096 / count) : std::int64_t{64});
  const std::int64_t pieces = (lines + together - 1) / together;
  parallel(planes * pieces, 1, 2 * size * extent.numel(), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t piece = begin; piece < end; ++piece) {
      const std::int64_t first = piece % pieces * together, last = std::min(first + together, lines);
      auto [read_at, write_at] = walk.at(piece / pieces, 2);
      read_at += first * walk.a[1];
      write_at += first * walk.b[1];
      if (runs) {
        for (std::int64_t i = first; i < last; ++i, read_at += walk.a[1], write_at += walk.b[1])
          std::memcpy(target + write_at * size, source + read_at * size, static_cast<std::size_t>(count * size));
      } else {
        table.transpose(reinterpret_cast<const float*>(source) + read_at, walk.a[0],
                        reinterpret_cast<float*>(target) + write_at, walk.b[1], last - first, count);
      }
    }
  });
}

}  // namespace wengert::xsimd_backend
