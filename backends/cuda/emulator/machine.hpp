#pragma once
// The books of a running grid. Private to the emulator.

#include <deque>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "emulator.hpp"
#include "fiber.hpp"

namespace wengert::emulator {

constexpr int warp_size = 32;
constexpr int largest_block = 1024;

enum class Meeting : std::uint8_t { barrier, sync_warp, shuffle, ballot };

std::string text(const Place& where);

// The device as one thread of the host sees it: it runs one grid at a time, and of that one block.
class Machine {
 public:
  Options options;

  void run(const char* kernel, std::int64_t blocks, int threads, void (*call)(const void*), const void* closure);

  // --- From within a thread of the device ---

  // Waits until all whom the meeting is for have come; returns what it gave this thread.
  std::uint64_t meet(Meeting meeting, unsigned mask, std::uint64_t value, int source, const Place& where);
  const detail::SharedArray& shared_array(const void* key, std::size_t element_bytes, std::size_t count);
  detail::Access access(const Place& where) const {
    return {current_, barriers_, warps_[current_ / warp_size].barriers, where};
  }
  // The thread that runs. Throws KernelFault outside kernels.
  int current() const;
  [[noreturn]] void fault(const std::string& what) const { fault(current_, what); }

 private:
  enum class State : std::uint8_t { unstarted, running, waiting, ready, ended };

  // One thread of the block.
  struct Thread {
    State state = State::unstarted;
    Fiber* fiber = nullptr;  // while it waits
    // What it waits for, what it brings there, and what it takes away.
    Meeting meeting = Meeting::barrier;
    unsigned mask = 0;
    Place where{};
    std::uint64_t value = 0;
    int source = 0;
    std::uint64_t result = 0;
  };
  // Lanes of one warp that have come to one meeting.
  struct Gathering {
    Meeting meeting = Meeting::barrier;
    unsigned mask = 0;
    Place where{};
    unsigned present = 0;
  };
  struct Warp {
    unsigned absent = 0;  // lanes that have ended, or do not exist
    unsigned barriers = 0;
    unsigned gathering = 0;  // which of these are in use
    Gathering gatherings[warp_size];
    char order = 0;  // what ThreadSanitizer knows its barriers by
  };
  struct Array {
    const void* key;
    detail::SharedArray array;
    std::unique_ptr<std::byte[]> elements;
    std::unique_ptr<detail::Trace[]> traces;
    bool in_use = false;
  };

  void run_block(std::int64_t block);
  Fiber& next_ready();
  void start_some();
  void run_threads(Fiber& self);
  void run_thread(int index);
  bool complete_barrier(const Thread& last);
  bool complete_warp(const Thread& last);
  void wait();
  void make_ready(int index);
  [[noreturn]] void explain_standstill() const;
  [[noreturn]] void fault(int thread, const std::string& what) const;
  void abandon();

  const char* kernel_ = nullptr;
  void (*call_)(const void*) = nullptr;
  const void* closure_ = nullptr;
  bool descending_ = false;

  // Arrays of fixed size: code of containers may be shared with files that ThreadSanitizer looks at.
  std::int64_t block_ = 0;
  int count_ = 0;  // threads of the block
  int started_ = 0, ended_ = 0, at_barrier_ = 0, current_ = -1;
  Thread threads_[largest_block];
  int ready_[largest_block] = {};
  int ready_count_ = 0;
  unsigned barriers_ = 0;
  Warp warps_[largest_block / warp_size];
  std::exception_ptr error_;

  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;  // those that have nothing to do
  Fiber* running_ = nullptr;
  std::deque<Array> arrays_;
  // What ThreadSanitizer knows the device's points of order by.
  char launch_ = 0, end_ = 0, barrier_[2] = {};
};

Machine& machine();

}  // namespace wengert::emulator
