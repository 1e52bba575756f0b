// The caching allocator: on a memory of its own, so that nothing else disturbs the counts, and behind tensors.

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "wengert/backend.hpp"
#include "wengert/ops.hpp"
#include "wengert/storage.hpp"

using namespace wengert;

namespace {

constexpr std::size_t kib = 1024, mib = 1024 * kib;

// Host memory of which the system has `limit` bytes.
class SmallMemory final : public Memory {
 public:
  explicit SmallMemory(Layout layout, std::size_t limit = 1024 * mib) : Memory("small", layout), left_(limit) {}
  SmallMemory(const SmallMemory&) = delete;
  SmallMemory& operator=(const SmallMemory&) = delete;
  ~SmallMemory() override {
    release_cached();
    CHECK(segments_.empty());
  }
  bool host_visible() const override { return true; }
  void upload(void* to, const void* host, std::size_t bytes) override { std::memcpy(to, host, bytes); }
  void download(void* host, const void* from, std::size_t bytes) override { std::memcpy(host, from, bytes); }
  void copy(void* to, const void* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }

 protected:
  void* system_allocate(std::size_t bytes) override {
    const std::lock_guard lock(mutex_);
    if (bytes > left_) throw BackendError("small memory: full");
    left_ -= bytes;
    void* data = std::aligned_alloc(64, bytes);
    segments_[data] = bytes;
    return data;
  }
  void system_release(void* data, std::size_t bytes) noexcept override {
    const std::lock_guard lock(mutex_);
    CHECK(segments_.at(data) == bytes);
    segments_.erase(data);
    left_ += bytes;
    std::free(data);
  }

 private:
  std::mutex mutex_;
  std::size_t left_;
  std::map<void*, std::size_t> segments_;
};

struct Held {
  Memory::Block block;
  std::size_t bytes;
  unsigned char mark;
};

void fill(const Held& held) { std::memset(held.block.data, held.mark, held.bytes); }
bool intact(const Held& held) {
  const auto* data = static_cast<const unsigned char*>(held.block.data);
  for (std::size_t i = 0; i < held.bytes; i += 61)
    if (data[i] != held.mark) return false;
  return data[held.bytes - 1] == held.mark;
}

constexpr Memory::Layout layouts[] = {Memory::Layout::separate, Memory::Layout::segments};

}  // namespace

TEST_CASE("memory is cached, counted, and given back") {
  for (const Memory::Layout layout : layouts) {
    SmallMemory memory(layout);
    for (int i = 0; i < 3; ++i) {
      const Memory::Block small = memory.allocate(4000), large = memory.allocate(4 * mib);
      CHECK(memory.stats().in_use >= static_cast<std::int64_t>(4000 + 4 * mib));
      memory.release(small);
      memory.release(large);
    }
    const MemoryStats stats = memory.stats();
    CHECK(stats.system_calls == 2);
    CHECK(stats.requests == 6);
    CHECK(stats.in_use == 0);
    CHECK(stats.reserved >= stats.peak_in_use);
    memory.release_cached();
    CHECK(memory.stats().reserved == 0);
  }
}

TEST_CASE("blocks are aligned to 64 bytes, large enough, and wasteful within bounds") {
  for (const Memory::Layout layout : layouts) {
    SmallMemory memory(layout);
    for (const std::size_t bytes :
         {std::size_t{1}, std::size_t{63}, std::size_t{64}, std::size_t{65}, std::size_t{127}, std::size_t{129},
          std::size_t{1000}, std::size_t{4097}, std::size_t{100'000}, 256 * kib - 1, 256 * kib, 256 * kib + 1,
          std::size_t{3'000'000}, 32 * mib, 33 * mib + 1}) {
      CAPTURE(bytes);
      const Memory::Block block = memory.allocate(bytes);
      CHECK(reinterpret_cast<std::uintptr_t>(block.data) % 64 == 0);
      CHECK(block.capacity >= bytes);
      CHECK(block.capacity <= std::max<std::size_t>(64, bytes + bytes / 8 + 64));
      memory.release(block);
    }
    CHECK(memory.allocate(0).data == nullptr);
  }
}

TEST_CASE("blocks never overlap, in whatever order they come and go") {
  for (const Memory::Layout layout : layouts) {
    SmallMemory memory(layout);
    std::vector<Held> held;
    std::mt19937 random(1);
    std::int64_t in_use = 0;
    bool right = true;
    for (int i = 0; i < 4000; ++i) {
      if (held.empty() || (held.size() < 60 && random() % 2 == 0)) {
        const std::size_t bytes = random() % 4 == 0 ? 1 + random() % 1000 : 200 * kib + random() % (2 * mib);
        held.push_back({memory.allocate(bytes), bytes, static_cast<unsigned char>(random())});
        in_use += static_cast<std::int64_t>(held.back().block.capacity);
        fill(held.back());
      } else {
        std::swap(held[random() % held.size()], held.back());
        right = right && intact(held.back());
        in_use -= static_cast<std::int64_t>(held.back().block.capacity);
        memory.release(held.back().block);
        held.pop_back();
      }
      right = right && memory.stats().in_use == in_use;
    }
    for (const Held& one : held) {
      right = right && intact(one);
      memory.release(one.block);
    }
    CHECK(right);
    CHECK(memory.stats().in_use == 0);
    memory.release_cached();
    CHECK(memory.stats().reserved == 0);
  }
}

TEST_CASE("what many blocks leave serves one of another size") {
  SmallMemory memory(Memory::Layout::segments);
  for (const unsigned order : {0U, 1U, 2U}) {
    std::vector<Memory::Block> blocks;
    for (int i = 0; i < 31; ++i) blocks.push_back(memory.allocate(mib - 64));
    CHECK(memory.stats().system_calls == 1);
    std::mt19937 random(order);
    std::shuffle(blocks.begin(), blocks.end(), random);
    for (const Memory::Block& block : blocks) memory.release(block);
    memory.release(memory.allocate(31 * mib));
    CHECK(memory.stats().system_calls == 1);
  }
}

TEST_CASE("what is cached is given up where the system has nothing left, and a segment is no larger than it must be") {
  SmallMemory memory(Memory::Layout::segments, 48 * mib);
  const Memory::Block first = memory.allocate(20 * mib);   // of a segment of 32 MiB
  const Memory::Block second = memory.allocate(14 * mib);  // no room for a second one
  CHECK(memory.stats().reserved == static_cast<std::int64_t>(48 * mib));
  CHECK_THROWS_AS(memory.allocate(20 * mib), BackendError);
  memory.release(first);
  memory.release(second);
  const Memory::Block third = memory.allocate(40 * mib);  // neither segment is large enough
  CHECK(memory.stats().reserved == static_cast<std::int64_t>(42 * mib));
  memory.release(third);
}

TEST_CASE("several threads allocate, release and empty the cache at once") {
  for (const Memory::Layout layout : layouts) {
    SmallMemory memory(layout);
    std::atomic<bool> right{true};
    std::vector<std::thread> threads;
    for (unsigned seed = 1; seed <= 4; ++seed) {
      threads.emplace_back([&memory, &right, seed] {
        std::mt19937 random(seed);
        std::vector<Held> held;
        for (int i = 0; i < 300; ++i) {
          const std::size_t bytes = random() % 2 == 0 ? 1 + random() % 1000 : 256 * kib + random() % mib;
          held.push_back({memory.allocate(bytes), bytes, static_cast<unsigned char>(random())});
          fill(held.back());
          if (held.size() == 8) {
            for (const Held& one : held) {
              if (!intact(one)) right = false;
              memory.release(one.block);
            }
            held.clear();
            if (seed == 1) memory.release_cached();
          }
        }
        for (const Held& one : held) memory.release(one.block);
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(right);
    CHECK(memory.stats().in_use == 0);
  }
}

TEST_CASE("an impossible request is a BackendError, and the next one works") {
  CHECK_THROWS_AS(empty({std::int64_t{1} << 50}), BackendError);
  CHECK(ones({3}).to_vector<float>() == std::vector<float>{1, 1, 1});
}

TEST_CASE("the memory of tensors is counted") {
  const Memory& memory = current_backend().memory();
  const MemoryStats start = memory.stats();
  {
    const Tensor x = empty({1000}), y = empty({1 << 20});
    CHECK(memory.stats().in_use >= start.in_use + 4000 + (4 << 20));
  }
  CHECK(memory.stats().in_use == start.in_use);
  CHECK(memory.stats().requests == start.requests + 2);
}
