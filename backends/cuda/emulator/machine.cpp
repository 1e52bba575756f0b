// Runs grids: the threads of a block one after the other, each until it ends or has to wait for others.

#include "machine.hpp"

#include <fmt/format.h>

#include <bit>
#include <string_view>
#include <utility>

#include "sanitizers.hpp"

namespace wengert::emulator {

namespace {

constexpr std::int64_t largest_grid = 2147483647;

bool same_place(const Place& a, const Place& b) {
  return a.line == b.line && (a.file == b.file || std::string_view(a.file) == b.file);
}

const char* name_of(Meeting meeting) {
  switch (meeting) {
    case Meeting::barrier: return "__syncthreads";
    case Meeting::sync_warp: return "__syncwarp";
    case Meeting::shuffle: return "a shuffle";
    case Meeting::ballot: return "__ballot_sync";
  }
  return "";
}

bool has_lane(unsigned mask, int lane) { return ((mask >> lane) & 1u) != 0; }

}  // namespace

std::string text(const Place& where) { return fmt::format("{}:{}", where.file, where.line); }

Machine& machine() {
  thread_local Machine instance;
  return instance;
}

int Machine::current() const {
  if (current_ < 0) throw KernelFault("a function of the device was called outside a kernel");
  return current_;
}

void Machine::fault(int thread, const std::string& what) const {
  throw KernelFault(fmt::format("kernel {}, block {}, thread {}: {}", kernel_, block_, thread, what));
}

// --- Grids and blocks ---

void Machine::run(const char* kernel, std::int64_t blocks, int threads, void (*call)(const void*),
                  const void* closure) {
  if (blocks < 1 || blocks > largest_grid || threads < 1 || threads > largest_block)
    throw BackendError(
        fmt::format("cuda-emulated: kernel {}: no grid can have {} blocks of {} threads", kernel, blocks, threads));
  if (current_ >= 0) fault(fmt::format("launches kernel {}", kernel));
  kernel_ = kernel, call_ = call, closure_ = closure, count_ = threads;
  const std::int64_t before = counts.launches++;
  descending_ = options.order == Order::alternating ? before % 2 == 1 : options.order == Order::descending;
  blockDim.x = static_cast<unsigned>(threads);
  gridDim.x = static_cast<unsigned>(blocks);
  tsan_release(&launch_);
  try {
    for (std::int64_t i = 0; i < blocks; ++i) run_block(descending_ ? blocks - 1 - i : i);
  } catch (...) {
    abandon();
    throw;
  }
  tsan_acquire(&end_);
  if (options.separate_threads) abandon();  // these fibers stand for threads that are gone
}

void Machine::run_block(std::int64_t block) {
  block_ = block;
  blockIdx.x = static_cast<unsigned>(block);
  started_ = ended_ = at_barrier_ = ready_count_ = 0;
  barriers_ = 0;
  for (int first = 0; first < count_; first += warp_size) {
    Warp& warp = warps_[first / warp_size];
    warp.absent = count_ - first >= warp_size ? 0u : ~0u << (count_ - first);
    warp.barriers = 0;
    warp.gathering = 0;
  }
  for (int i = 0; i < count_; ++i) threads_[i].state = State::unstarted;
  for (Array& array : arrays_) {
    array.in_use = false;
    if (options.separate_threads) array.key = nullptr;  // another block's memory is another's
  }
  while (ended_ < count_) {
    if (ready_count_ > 0)
      next_ready().resume(!options.separate_threads);
    else if (started_ < count_)
      start_some();
    else
      explain_standstill();
    current_ = -1;
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }
}

// The thread that goes on next, of those that are ready.
Fiber& Machine::next_ready() {
  const int index = ready_[--ready_count_];
  threads_[index].state = State::running;
  current_ = index;
  threadIdx.x = static_cast<unsigned>(index);
  running_ = threads_[index].fiber;
  return *running_;
}

void Machine::start_some() {
  if (idle_.empty()) {
    constexpr auto life = [](void* self) {
      auto& machine = *static_cast<Machine*>(self);
      machine.run_threads(*machine.running_);
    };
    idle_.reserve(fibers_.size() + 1);
    fibers_.push_back(std::make_unique<Fiber>(life, this));
    idle_.push_back(fibers_.back().get());
  }
  running_ = idle_.back();
  idle_.pop_back();
  running_->resume(!options.separate_threads);
}

// The life of a fiber: thread after thread, until one has to wait and the block's others go to another fiber.
void Machine::run_threads(Fiber& self) {
  for (;;) {
    while (!error_ && started_ < count_) {
      const int index = descending_ ? count_ - 1 - started_ : started_;
      ++started_;
      run_thread(index);
      if (options.separate_threads) break;  // the next one is another thread to ThreadSanitizer, too
    }
    if (!options.separate_threads) idle_.push_back(&self);
    self.suspend();
  }
}

void Machine::run_thread(int index) {
  current_ = index;
  threadIdx.x = static_cast<unsigned>(index);
  threads_[index].state = State::running;
  tsan_acquire(&launch_);
  try {
    call_(closure_);
  } catch (...) {
    error_ = std::current_exception();
  }
  tsan_release(&end_);
  threads_[index].state = State::ended;
  warps_[index / warp_size].absent |= 1u << (index % warp_size);
  ++ended_;
}

// Forgets fibers that will never go on.
void Machine::abandon() {
  current_ = -1;
  ready_count_ = 0;
  error_ = nullptr;
  idle_.clear();
  fibers_.clear();
  arrays_.clear();
}

// --- Meetings of threads ---

std::uint64_t Machine::meet(Meeting meeting, unsigned mask, std::uint64_t value, int source, const Place& where) {
  Thread& self = threads_[current()];
  if (meeting != Meeting::barrier && !has_lane(mask, current_ % warp_size))
    fault(fmt::format("{} at {}: the mask {:#010x} leaves out the calling lane", name_of(meeting), text(where), mask));
  self.meeting = meeting, self.mask = mask, self.where = where, self.value = value, self.source = source;

  // A shuffle or a ballot exchanges what it is given; it does not order accesses to memory.
  char* const order = meeting == Meeting::barrier     ? &barrier_[barriers_ % 2]
                      : meeting == Meeting::sync_warp ? &warps_[current_ / warp_size].order
                                                      : nullptr;
  if (order) tsan_release(order);
  if (!(meeting == Meeting::barrier ? complete_barrier(self) : complete_warp(self))) wait();
  if (order) tsan_acquire(order);
  return self.result;
}

void Machine::wait() {
  Thread& self = threads_[current_];
  self.state = State::waiting;
  self.fiber = running_;
  if (ready_count_ > 0)
    self.fiber->hand_over(next_ready());
  else
    self.fiber->suspend();
}

void Machine::make_ready(int index) {
  threads_[index].state = State::ready;
  ready_[ready_count_++] = index;
}

// Both return whether `last`, which has just come, is the last one that the others wait for; if so, they may go on.
// The stack of ready threads is emptied from its end: filled backwards, it keeps to the order of the launch.

bool Machine::complete_barrier(const Thread& last) {
  if (++at_barrier_ < count_) return false;
  for (int i = 0; i < count_; ++i)
    if (!same_place(threads_[i].where, last.where))
      fault(fmt::format("divergent __syncthreads: this thread is at {}, thread {} at {}", text(last.where), i,
                        text(threads_[i].where)));
  at_barrier_ = 0;
  ++barriers_;
  for (int i = count_ - 1; i >= 0; --i)
    if (const int index = descending_ ? count_ - 1 - i : i; index != current_) make_ready(index);
  return true;
}

bool Machine::complete_warp(const Thread& last) {
  const int first = current_ / warp_size * warp_size;
  Warp& warp = warps_[current_ / warp_size];
  Thread* const lanes = threads_ + first;
  for (int lane = 0; (last.mask & warp.absent) != 0 && lane < warp_size; ++lane)
    if (has_lane(last.mask & warp.absent, lane))
      fault(fmt::format("{} at {}: lane {} of the mask {:#010x} {}", name_of(last.meeting), text(last.where), lane,
                        last.mask, first + lane < count_ ? "has ended" : "does not exist"));

  int place = std::countr_one(warp.gathering);  // a free one, unless there is one that fits
  for (unsigned rest = warp.gathering; rest != 0; rest &= rest - 1) {
    const Gathering& other = warp.gatherings[std::countr_zero(rest)];
    if (other.meeting == last.meeting && other.mask == last.mask && same_place(other.where, last.where))
      place = std::countr_zero(rest);
  }
  Gathering& mine = warp.gatherings[place];
  if (!has_lane(warp.gathering, place)) mine = {last.meeting, last.mask, last.where, 0};
  warp.gathering |= 1u << place;
  mine.present |= 1u << (current_ % warp_size);
  if (mine.present != last.mask) return false;
  warp.gathering &= ~(1u << place);

  std::uint64_t ballot = 0;
  for (int lane = 0; lane < warp_size; ++lane)
    if (has_lane(last.mask, lane)) ballot |= (lanes[lane].value & 1u) << lane;
  for (int i = warp_size - 1; i >= 0; --i) {
    const int lane = descending_ ? warp_size - 1 - i : i;
    if (!has_lane(last.mask, lane)) continue;
    lanes[lane].result = ballot;
    if (last.meeting == Meeting::shuffle) {
      if (!has_lane(last.mask, lanes[lane].source))
        fault(first + lane, fmt::format("a shuffle at {} reads lane {}, which is not in the mask {:#010x}",
                                        text(last.where), lanes[lane].source, last.mask));
      lanes[lane].result = lanes[lanes[lane].source].value;
    }
    if (first + lane != current_) make_ready(first + lane);
  }
  if (last.meeting == Meeting::sync_warp && last.mask == 0xFFFFFFFFu) ++warp.barriers;
  return true;
}

// Nobody can go on: says who waits, and for whom in vain.
void Machine::explain_standstill() const {
  for (int i = 0; i < count_; ++i) {
    const Thread& waiting = threads_[i];
    if (waiting.state != State::waiting) continue;
    for (int j = 0; j < count_; ++j) {
      const Thread& other = threads_[j];
      const bool awaited = waiting.meeting == Meeting::barrier ||
                           (i / warp_size == j / warp_size && has_lane(waiting.mask, j % warp_size));
      if (i == j || !awaited) continue;
      const std::string what = fmt::format("divergent {}: at {} it waits for thread {}, which ",
                                           name_of(waiting.meeting), text(waiting.where), j);
      if (other.state == State::ended) fault(i, what + "has ended");
      if (other.meeting != waiting.meeting || other.mask != waiting.mask || !same_place(other.where, waiting.where))
        fault(i, fmt::format("{}is at {} at {}", what, name_of(other.meeting), text(other.where)));
    }
  }
  fault(-1, "a standstill");
}

// --- What kernels call ---

void detail::run(const char* kernel, std::int64_t blocks, int threads, void (*call)(const void*), const void* closure) {
  machine().run(kernel, blocks, threads, call, closure);
}
std::uint64_t detail::shuffle(unsigned mask, std::uint64_t value, int source, const Place& where) {
  return machine().meet(Meeting::shuffle, mask, value, source, where);
}
int detail::current_lane() { return machine().current() % warp_size; }

OptionsScope::OptionsScope(const Options& options) : previous_(std::exchange(machine().options, options)) {}
OptionsScope::~OptionsScope() { machine().options = previous_; }

}  // namespace wengert::emulator

// NOLINTBEGIN(bugprone-reserved-identifier)
using wengert::emulator::machine;
using wengert::emulator::Meeting;
using wengert::emulator::Place;
void __syncthreads(const Place& where) { machine().meet(Meeting::barrier, 0, 0, 0, where); }
void __syncwarp(unsigned mask, const Place& where) { machine().meet(Meeting::sync_warp, mask, 0, 0, where); }
unsigned __ballot_sync(unsigned mask, bool predicate, const Place& where) {
  return static_cast<unsigned>(machine().meet(Meeting::ballot, mask, predicate ? 1 : 0, 0, where));
}
// NOLINTEND(bugprone-reserved-identifier)
