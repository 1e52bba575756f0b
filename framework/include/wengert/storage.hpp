#pragma once
/// Memory spaces, their caching allocator, and Storage: the counted block of bytes behind a tensor.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "wengert/detail/ref.hpp"

namespace wengert {

namespace detail {
struct Piece;
}

/// What a memory's caching allocator has done so far. Byte counts are of whole blocks.
struct MemoryStats {
  std::int64_t in_use = 0;        ///< bytes held by tensors now
  std::int64_t peak_in_use = 0;   ///< the largest `in_use` since the start or the last `reset_peak`
  std::int64_t reserved = 0;      ///< bytes obtained from the system: in use or cached
  std::int64_t requests = 0;      ///< allocations asked for
  std::int64_t system_calls = 0;  ///< allocations that the cache could not serve
};

/// A memory space: where the bytes of a tensor lie and how they get there. CPU backends share `host_memory()`.
/// The base class caches what is released, so that a program that repeats itself stops asking the system. Thread-safe.
class Memory {
 public:
  struct Block {
    void* data = nullptr;
    std::size_t capacity = 0;
    detail::Piece* piece = nullptr;  ///< of a segment; null for a block of its own
  };

  /// How blocks are obtained from the system and cached.
  enum class Layout {
    separate,  ///< each for itself; a released block serves requests of its size class, eight to each power of two
    segments,  ///< those of 256 KiB and more are cut from segments of 32 MiB or more, and joined again when released
  };

  explicit Memory(const char* name, Layout layout = Layout::separate);
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  virtual ~Memory();

  const char* name() const { return name_; }
  /// True when a pointer into this memory may be dereferenced by ordinary code.
  virtual bool host_visible() const = 0;

  /// At least `bytes` bytes, aligned to 64; no block for 0 bytes. The content is arbitrary.
  Block allocate(std::size_t bytes);
  /// Returns a block to the cache.
  void release(Block block) noexcept;
  /// Gives every cached block back to the system.
  void release_cached();
  MemoryStats stats() const;
  void reset_peak();
  /// Keeps every other thread out of the allocator, for the duration of a fork.
  void lock();
  void unlock();

  /// Copies between this memory and the host, complete on return; and within this memory, in the order of its kernels.
  virtual void upload(void* to, const void* host, std::size_t bytes) = 0;
  virtual void download(void* host, const void* from, std::size_t bytes) = 0;
  virtual void copy(void* to, const void* from, std::size_t bytes) = 0;

 protected:
  /// From and to the system. `system_allocate` throws BackendError when it cannot.
  virtual void* system_allocate(std::size_t bytes) = 0;
  virtual void system_release(void* data, std::size_t bytes) noexcept = 0;
  /// Called as a block of `capacity` bytes is handed out for `bytes` of them, and as it comes back to the cache: where
  /// a memory tells a sanitizer what nobody may touch. By default nothing.
  virtual void lend(void* data, std::size_t bytes, std::size_t capacity) noexcept;
  virtual void take_back(void* data, std::size_t capacity) noexcept;

 private:
  struct Cache;
  void* obtain(std::size_t bytes);
  void give_up(void* data, std::size_t bytes) noexcept;
  Block allocate_separate(std::size_t bytes);
  Block allocate_piece(std::size_t bytes);

  const char* name_;
  Layout layout_;
  Cache* cache_;
};

/// The memory that all CPU backends share. Lives as long as the process.
Memory& host_memory();

/// Smallest and largest value of an integer tensor. Empty: smallest > largest.
struct IdRange {
  std::int64_t smallest = INT64_MAX;
  std::int64_t largest = INT64_MIN;
  bool within(std::int64_t rows) const { return smallest > largest || (smallest >= 0 && largest < rows); }
};

/// A counted block of bytes in one memory. Every read and every write goes through `read` and `write`: a write raises
/// the version, which is how the tape notices that a value it saved has changed, and forgets the cached id range.
class Storage : public detail::Counted {
 public:
  static detail::Ref<Storage> make(Memory& memory, std::size_t bytes);
  /// Memory that somebody else owns and keeps alive.
  static detail::Ref<Storage> borrow(Memory& memory, void* data, std::size_t bytes);
  static void destroy(Storage* storage) noexcept;

  const void* read() const { return block_.data; }
  void* write() {
    ++version_;
    range_known_.store(false, std::memory_order_relaxed);
    return block_.data;
  }

  std::uint64_t version() const { return version_; }

  std::size_t bytes() const { return bytes_; }
  bool owned() const { return owned_; }  ///< false: borrowed
  Memory& memory() const { return *memory_; }

  /// Range of the integers in here, if it is known for the present version. Safe while several threads read.
  std::optional<IdRange> id_range() const {
    if (!range_known_.load(std::memory_order_acquire)) return {};
    return IdRange{smallest_.load(std::memory_order_relaxed), largest_.load(std::memory_order_relaxed)};
  }
  void set_id_range(IdRange range) {
    smallest_.store(range.smallest, std::memory_order_relaxed);
    largest_.store(range.largest, std::memory_order_relaxed);
    range_known_.store(true, std::memory_order_release);
  }

 private:
  Storage(Memory& memory, Memory::Block block, std::size_t bytes, bool owned)
      : memory_(&memory), block_(block), bytes_(bytes), owned_(owned) {}
  ~Storage() = default;

  Memory* memory_;
  Memory::Block block_;
  std::size_t bytes_;
  std::uint64_t version_ = 0;
  std::atomic<bool> range_known_{false};
  std::atomic<std::int64_t> smallest_{0}, largest_{0};
  bool owned_;
};

}  // namespace wengert
