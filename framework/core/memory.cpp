// The caching allocator, host memory, and Storage.

#include <fmt/format.h>
#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <vector>

#include "pool.hpp"
#include "sanitizer.hpp"
#include "segments.hpp"
#include "wengert/error.hpp"
#include "wengert/storage.hpp"

namespace wengert {

namespace {

constexpr std::size_t granule = 64;  // one cache line, one AVX-512 register
constexpr std::size_t huge_page = std::size_t{2} << 20;
constexpr std::size_t page = 4096;
constexpr std::size_t segment_bytes = std::size_t{32} << 20;
constexpr std::size_t smallest_piece = std::size_t{256} << 10;  // of a segment; less is cached by size
constexpr std::size_t largest_request = std::size_t{1} << 62;

std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

struct SizeClass {
  std::size_t index, capacity;
};

// Eight classes to each power of two: at most 12.5 % is lost, and requests of slightly different size share blocks.
SizeClass size_class(std::size_t bytes) {
  bytes = std::max(bytes, granule);
  const auto exponent =
      static_cast<std::size_t>(std::bit_width(bytes - 1) - 1);  // 2^exponent < bytes <= 2^(exponent + 1)
  const std::size_t step = std::max(granule, (std::size_t{1} << exponent) / 8);
  const std::size_t capacity = round_up(bytes, step);
  return {exponent * 8 + (capacity - 1 - (std::size_t{1} << exponent)) * 8 / (std::size_t{1} << exponent), capacity};
}

}  // namespace

struct Memory::Cache {
  mutable std::mutex mutex;
  std::vector<void*> bins[64 * 8];
  detail::Segments segments;
  MemoryStats stats;
};

Memory::Memory(const char* name, Layout layout) : name_(name), layout_(layout), cache_(new Cache) {}
Memory::~Memory() { delete cache_; }

void* Memory::obtain(std::size_t bytes) {
  void* data = system_allocate(bytes);
  const std::lock_guard lock(cache_->mutex);
  ++cache_->stats.system_calls;
  cache_->stats.reserved += static_cast<std::int64_t>(bytes);
  return data;
}

// The opposite, with the lock held.
void Memory::give_up(void* data, std::size_t bytes) noexcept {
  system_release(data, bytes);
  cache_->stats.reserved -= static_cast<std::int64_t>(bytes);
}

// A block of the right size class.
Memory::Block Memory::allocate_separate(std::size_t bytes) {
  const SizeClass wanted = size_class(bytes);
  {
    const std::lock_guard lock(cache_->mutex);
    if (auto& bin = cache_->bins[wanted.index]; !bin.empty()) {
      void* data = bin.back();
      bin.pop_back();
      return {data, wanted.capacity};
    }
  }
  try {
    return {obtain(wanted.capacity), wanted.capacity};
  } catch (const BackendError&) {
    release_cached();  // what is cached may be in the way
    return {obtain(wanted.capacity), wanted.capacity};
  }
}

// A piece of a segment, whole pages of it, with a line to spare: neighbours do not touch, which a sanitizer can see.
Memory::Block Memory::allocate_piece(std::size_t bytes) {
  const std::size_t wanted = round_up(bytes + granule, page), alone = round_up(wanted, huge_page);
  const auto take = [&]() -> Block {
    detail::Piece* piece = cache_->segments.take(wanted);
    return piece ? Block{piece->data, piece->bytes, piece} : Block{};
  };
  {
    const std::lock_guard lock(cache_->mutex);
    if (const Block block = take(); block.data) return block;
  }
  std::size_t segment = std::max(alone, segment_bytes);
  void* data = nullptr;
  try {
    data = obtain(segment);
  } catch (const BackendError&) {
    release_cached();
    data = obtain(segment = alone);
  }
  take_back(data, segment);
  const std::lock_guard lock(cache_->mutex);
  try {
    cache_->segments.add(data, segment);
  } catch (const std::bad_alloc&) {
    give_up(data, segment);
    throw;
  }
  return take();
}

Memory::Block Memory::allocate(std::size_t bytes) {
  if (bytes == 0) return {};
  if (bytes > largest_request) throw BackendError(fmt::format("{} memory: cannot allocate {} bytes", name_, bytes));
  const Block block =
      layout_ == Layout::segments && bytes >= smallest_piece ? allocate_piece(bytes) : allocate_separate(bytes);
  const std::lock_guard lock(cache_->mutex);
  MemoryStats& stats = cache_->stats;
  ++stats.requests;
  stats.in_use += static_cast<std::int64_t>(block.capacity);
  stats.peak_in_use = std::max(stats.peak_in_use, stats.in_use);
  lend(block.data, bytes, block.capacity);
  return block;
}

void Memory::release(Block block) noexcept {
  if (!block.data) return;
  take_back(block.data, block.capacity);
  const std::lock_guard lock(cache_->mutex);
  cache_->stats.in_use -= static_cast<std::int64_t>(block.capacity);
  if (block.piece) return cache_->segments.give(block.piece);
  auto& bin = cache_->bins[size_class(block.capacity).index];
  try {
    bin.push_back(block.data);
  } catch (const std::bad_alloc&) {
    give_up(block.data, block.capacity);
  }
}

void Memory::release_cached() {
  const std::lock_guard lock(cache_->mutex);
  for (std::size_t index = 0; index < std::size(cache_->bins); ++index) {
    // The capacity of a class is the largest size that maps to it.
    const std::size_t power = std::size_t{1} << (index / 8);
    const std::size_t capacity = size_class(power + (index % 8 + 1) * power / 8).capacity;
    for (void* data : cache_->bins[index]) give_up(data, capacity);
    cache_->bins[index].clear();
  }
  cache_->segments.release_whole([this](void* data, std::size_t bytes) { give_up(data, bytes); });
}

void Memory::lend(void* /*data*/, std::size_t /*bytes*/, std::size_t /*capacity*/) noexcept {}
void Memory::take_back(void* /*data*/, std::size_t /*capacity*/) noexcept {}

void Memory::lock() { cache_->mutex.lock(); }
void Memory::unlock() { cache_->mutex.unlock(); }

MemoryStats Memory::stats() const {
  const std::lock_guard lock(cache_->mutex);
  return cache_->stats;
}

void Memory::reset_peak() {
  const std::lock_guard lock(cache_->mutex);
  cache_->stats.peak_in_use = cache_->stats.in_use;
}

namespace {

class HostMemory final : public Memory {
 public:
  HostMemory() : Memory("host", Layout::segments) {}
  bool host_visible() const override { return true; }
  void upload(void* to, const void* host, std::size_t bytes) override { copy(to, host, bytes); }
  void download(void* host, const void* from, std::size_t bytes) override { copy(host, from, bytes); }
  void copy(void* to, const void* from, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }

 protected:
  void* system_allocate(std::size_t bytes) override {
    const bool large = bytes >= huge_page;
    if (large) bytes = round_up(bytes, huge_page);
    void* data = std::aligned_alloc(large ? huge_page : granule, bytes);
    if (!data) throw BackendError(fmt::format("host memory: cannot allocate {} bytes", bytes));
    if (large) madvise(data, bytes, MADV_HUGEPAGE);  // a hint: fewer page faults, fewer TLB misses for random rows
    return data;
  }
  void system_release(void* data, std::size_t bytes) noexcept override {
    detail::unpoison(data, bytes);
    std::free(data);
  }
  void lend(void* data, std::size_t bytes, std::size_t capacity) noexcept override {
    detail::unpoison(data, bytes);
    detail::poison(static_cast<char*>(data) + bytes, capacity - bytes);
#ifndef NDEBUG
    std::memset(data, 0xFF, bytes);  // NaN in both floating types: reading what was never written shows
#endif
  }
  void take_back(void* data, std::size_t capacity) noexcept override { detail::poison(data, capacity); }
};

}  // namespace

Memory& host_memory() {
  // Never destroyed: static tensors may outlive it otherwise. A fork finds its lock free: a child has no other thread
  // that could ever open it.
  static Memory& memory = *[] {
    static Memory* made = new HostMemory;
    pthread_atfork([] { made->lock(); }, [] { made->unlock(); }, [] { made->unlock(); });
    return made;
  }();
  return memory;
}

detail::Ref<Storage> Storage::make(Memory& memory, std::size_t bytes) {
  const Memory::Block block = memory.allocate(bytes);
  return detail::Ref<Storage>(new (detail::Pool<Storage>::allocate()) Storage(memory, block, bytes, true));
}

detail::Ref<Storage> Storage::borrow(Memory& memory, void* data, std::size_t bytes) {
  return detail::Ref<Storage>(new (detail::Pool<Storage>::allocate()) Storage(memory, {data, bytes}, bytes, false));
}

void Storage::destroy(Storage* storage) noexcept {
  if (storage->owned_) storage->memory_->release(storage->block_);
  storage->~Storage();
  detail::Pool<Storage>::release(storage);
}

}  // namespace wengert
