#pragma once
// Memory for the nodes of one tape: handed out front to back, taken back all at once, kept for the next tape.

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

namespace wengert::detail {

class Arena {
 public:
  void* allocate(std::size_t bytes, std::size_t alignment) {
    if (current_ == chunks_.size() || aligned(alignment) + bytes > chunks_[current_].bytes)
      next_chunk(bytes + alignment);
    const std::size_t start = aligned(alignment);
    used_ = start + bytes;
    return chunks_[current_].memory.get() + start;
  }

  // Everything handed out is void. What this tape used is kept for the next, and so are chunks that earlier ones
  // needed, up to a bound.
  void reset() {
    std::size_t kept = 0, total = 0;
    while (kept < chunks_.size() && (kept <= current_ || total + chunks_[kept].bytes <= keep_unused))
      total += chunks_[kept++].bytes;
    chunks_.resize(kept);
    current_ = 0;
    used_ = 0;
  }

 private:
  struct Chunk {
    std::unique_ptr<std::byte[]> memory;
    std::size_t bytes;
  };
  static constexpr std::size_t first_bytes = std::size_t{64} << 10;
  static constexpr std::size_t largest_bytes = std::size_t{4} << 20;
  static constexpr std::size_t keep_unused = std::size_t{64} << 20;

  // The first offset from `used_` on whose address is a multiple of `alignment`.
  std::size_t aligned(std::size_t alignment) const {
    const auto base = reinterpret_cast<std::size_t>(chunks_[current_].memory.get());
    return (base + used_ + alignment - 1) / alignment * alignment - base;
  }

  void next_chunk(std::size_t needed) {
    if (current_ < chunks_.size()) ++current_;
    while (current_ < chunks_.size() && chunks_[current_].bytes < needed)
      chunks_.erase(chunks_.begin() + static_cast<std::ptrdiff_t>(current_));
    if (current_ == chunks_.size()) {
      std::size_t bytes = chunks_.empty() ? first_bytes : std::min(2 * chunks_.back().bytes, largest_bytes);
      bytes = std::max(bytes, needed);
      chunks_.push_back({std::make_unique_for_overwrite<std::byte[]>(bytes), bytes});
    }
    used_ = 0;
  }

  std::vector<Chunk> chunks_;
  std::size_t current_ = 0;  // == chunks_.size() only while there are none
  std::size_t used_ = 0;
};

}  // namespace wengert::detail
