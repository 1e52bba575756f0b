// The emulator of CUDA devices finds what it promises to find: one broken kernel for each promise.

#include "emulator/emulator.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "../framework/core/sanitizer.hpp"
#include "emulator_tools.hpp"
#include "same_bits.hpp"
#include "wengert/backend.hpp"

namespace emu = wengert::emulator;
using emu::KernelFault;
using wengert::testing::child_work;
using wengert::testing::Floats;
using wengert::testing::in_child;

namespace {

std::string fault_of(const std::function<void()>& launch) {
  try {
    launch();
  } catch (const KernelFault& fault) {
    return fault.what();
  }
  return "";
}
// The fault names the kernel, this file, and what is wrong.
void check_fault(const std::function<void()>& launch, const char* what) {
  const std::string fault = fault_of(launch);
  CAPTURE(fault);
  CHECK(fault.find("kernel k, block ") == 0);
  CHECK(fault.find("emulator_test.cpp:") != std::string::npos);
  CHECK(fault.find(what) != std::string::npos);
}

}  // namespace

// --- Launches ---

namespace {
__global__ void count_up(float* out, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) out[i] = static_cast<float>(i);
}
}  // namespace

TEST_CASE("emulator: every thread of every block runs once, in either order") {
  for (const emu::Order order : {emu::Order::ascending, emu::Order::descending}) {
    const emu::OptionsScope use({.order = order});
    const Floats out(100);
    emu::run("k", 4, 32, count_up, out.data(), 100);
    for (int i = 0; i < 100; ++i) CHECK(out.values()[static_cast<std::size_t>(i)] == static_cast<float>(i));
  }
}

TEST_CASE("emulator: what a device would refuse to launch is refused, with the kernel's name") {
  for (const std::int64_t blocks : {std::int64_t{0}, std::int64_t{1} << 31})
    CHECK_THROWS_WITH_AS(emu::run("k", blocks, 32, count_up, nullptr, 0), doctest::Contains("kernel k"),
                         wengert::BackendError);
  for (const int threads : {0, 1025})
    CHECK_THROWS_WITH_AS(emu::run("k", 1, threads, count_up, nullptr, 0), doctest::Contains("kernel k"),
                         wengert::BackendError);
}

// --- Meetings of threads ---

namespace {
__global__ void some_threads_leave_before_the_barrier() {
  if (threadIdx.x >= 40) return;
  __syncthreads();
}
__global__ void a_barrier_in_each_branch() {
  if (threadIdx.x < 32)
    __syncthreads();
  else
    __syncthreads();
}
__global__ void one_lane_takes_no_part(float* out) {
  if (threadIdx.x == 7) return;
  out[threadIdx.x] = static_cast<float>(__ballot_sync(0xFFFFFFFFu, true));
}
__global__ void a_ballot_in_each_branch() {
  if (threadIdx.x % 2 == 0)
    __ballot_sync(0xFFFFFFFFu, true);
  else
    __ballot_sync(0xFFFFFFFFu, true);
}
__global__ void the_caller_is_not_in_the_mask() {
  if (threadIdx.x < 17) __ballot_sync(0xFFFFu, true);
}
__global__ void reads_a_lane_that_is_not_there() {
  if (threadIdx.x < 16) __shfl_down_sync(0xFFFFu, 1.0f, 1);
}
__global__ void half_a_warp() { __ballot_sync(0xFFFFFFFFu, true); }
__global__ void a_barrier_against_a_ballot() {
  if (threadIdx.x < 32)
    __ballot_sync(0xFFFFFFFFu, true);
  else
    __syncthreads();
}
}  // namespace

TEST_CASE("emulator: divergent barriers, shuffles and ballots are faults") {
  check_fault([] { emu::run("k", 1, 64, some_threads_leave_before_the_barrier); }, "divergent __syncthreads");
  check_fault([] { emu::run("k", 1, 64, a_barrier_in_each_branch); }, "divergent __syncthreads");
  const Floats out(32);
  check_fault([&] { emu::run("k", 1, 32, one_lane_takes_no_part, out.data()); }, "__ballot_sync");
  check_fault([] { emu::run("k", 1, 32, a_ballot_in_each_branch); }, "divergent __ballot_sync");
  check_fault([] { emu::run("k", 1, 32, the_caller_is_not_in_the_mask); }, "leaves out the calling lane");
  check_fault([] { emu::run("k", 1, 32, reads_a_lane_that_is_not_there); }, "reads lane 16, which is not in the mask");
  check_fault([] { emu::run("k", 1, 16, half_a_warp); }, "lane 16 of the mask 0xffffffff does not exist");
  check_fault([] { emu::run("k", 1, 64, a_barrier_against_a_ballot); }, "divergent __syncthreads");
  emu::run("k", 1, 32, count_up, out.data(), 32);  // the next launch is unaffected
  CHECK(out.values()[31] == 31.0f);
}

namespace {
__global__ void exchange_lanes(float* out) {
  const auto lane = static_cast<float>(threadIdx.x % 32);
  float* const mine = out + 6 * static_cast<std::size_t>(threadIdx.x);
  mine[0] = __shfl_sync(0xFFFFFFFFu, lane, 5);
  mine[1] = __shfl_xor_sync(0xFFFFFFFFu, lane, 3);
  mine[2] = __shfl_down_sync(0xFFFFFFFFu, lane, 4);
  mine[3] = __shfl_up_sync(0xFFFFFFFFu, lane, 4);
  mine[4] = static_cast<float>(__ballot_sync(0xFFFFFFFFu, threadIdx.x % 8 == 0));
  mine[5] = threadIdx.x % 32 < 16 ? __shfl_xor_sync(0xFFFFu, lane, 1) : __shfl_xor_sync(0xFFFF0000u, lane, 2);
}
}  // namespace

TEST_CASE("emulator: shuffles and ballots give what a device gives") {
  for (const emu::Order order : {emu::Order::ascending, emu::Order::descending}) {
    const emu::OptionsScope use({.order = order});
    const Floats out(6 * 64);
    emu::run("k", 1, 64, exchange_lanes, out.data());
    const std::vector<float> values = out.values();
    for (int thread = 0; thread < 64; ++thread) {
      const int lane = thread % 32;
      const float* mine = values.data() + 6 * thread;
      CHECK(mine[0] == 5.0f);
      CHECK(mine[1] == static_cast<float>(lane ^ 3));
      CHECK(mine[2] == static_cast<float>(lane < 28 ? lane + 4 : lane));
      CHECK(mine[3] == static_cast<float>(lane >= 4 ? lane - 4 : lane));
      CHECK(mine[4] == static_cast<float>(0x01010101u));
      CHECK(mine[5] == static_cast<float>(lane < 16 ? lane ^ 1 : lane ^ 2));
    }
  }
}

// --- Shared memory ---

namespace {
// Reverses 64 values; `barriers` says which of its two barriers it has.
__global__ void reverse_twice(float* out, int barriers) {
  WENGERT_SHARED(float, tile, 64);
  const unsigned i = threadIdx.x;
  tile[i] = out[i];
  if (barriers & 1) __syncthreads();
  const float first = tile[63 - i];
  if (barriers & 2) __syncthreads();
  tile[i] = first;
  __syncthreads();
  out[i] = tile[63 - i];
}
__global__ void two_threads_write_one_element(float* out) {
  WENGERT_SHARED(float, tile, 1);
  if (threadIdx.x < 2) tile[0] = 1.0f;
  __syncthreads();
  out[threadIdx.x] = tile[0];
}
__global__ void reads_what_nobody_wrote(float* out) {
  WENGERT_SHARED(float, tile, 64);
  if (threadIdx.x < 63) tile[threadIdx.x] = 1.0f;
  __syncthreads();
  out[threadIdx.x] = tile[threadIdx.x];
}
__global__ void touches_past_the_end(float* out, bool write) {
  WENGERT_SHARED(float, tile, 32);
  tile[threadIdx.x] = 1.0f;
  if (write)
    tile[threadIdx.x + 1] = 2.0f;
  else
    out[threadIdx.x] = tile[threadIdx.x + 1];
}
// Neighbours exchange values; `warp_barrier` keeps them apart if they are of one warp.
__global__ void neighbours(float* out, unsigned apart, bool warp_barrier) {
  WENGERT_SHARED(float, tile, 64);
  const unsigned i = threadIdx.x;
  tile[i] = static_cast<float>(i);
  if (warp_barrier) __syncwarp();
  out[i] = tile[i ^ apart];
}
}  // namespace

TEST_CASE("emulator: a missing barrier is a fault, whatever the order of threads") {
  std::vector<float> values(64);
  for (std::size_t i = 0; i < 64; ++i) values[i] = static_cast<float>(i * i);
  for (const emu::Order order : {emu::Order::ascending, emu::Order::descending}) {
    const emu::OptionsScope use({.order = order});
    const Floats out(values);
    emu::run("k", 1, 64, reverse_twice, out.data(), 3);
    CHECK_SAME_BITS(out.values(), values);
    check_fault([&] { emu::run("k", 1, 64, reverse_twice, out.data(), 2); }, "element");
    check_fault([&] { emu::run("k", 1, 64, reverse_twice, out.data(), 1); }, "missing barrier");
    check_fault([&] { emu::run("k", 1, 64, two_threads_write_one_element, out.data()); }, "missing barrier");
    emu::run("k", 1, 64, neighbours, out.data(), 1, true);
    check_fault([&] { emu::run("k", 1, 64, neighbours, out.data(), 32, true); }, "element");  // of another warp
    check_fault([&] { emu::run("k", 1, 64, neighbours, out.data(), 1, false); }, "element");
  }
}

TEST_CASE("emulator: shared memory has bounds, and nothing in it before it is written") {
  const Floats out(64);
  check_fault([&] { emu::run("k", 1, 64, reads_what_nobody_wrote, out.data()); }, "element 63");
  const emu::OptionsScope last_thread_first({.order = emu::Order::descending});
  for (const bool write : {true, false})
    check_fault([&] { emu::run("k", 1, 32, touches_past_the_end, out.data(), write); }, "element 32 of 32");
}

// --- Device memory ---

namespace {
__global__ void add_neighbour(const float* x, float* out) {  // each block's values from the block before
  const unsigned i = blockIdx.x;
  out[i] = i == 0 ? x[i] : out[i - 1] + x[i];
}
__global__ void write_at(float* out, std::int64_t i) { out[i] = 1.0f; }
__global__ void read_at(const float* x, std::int64_t i, float* out) { out[0] = x[i]; }
}  // namespace

TEST_CASE("emulator: a race between blocks shows as a difference between the two orders") {
  const Floats x(std::vector<float>{1, 2, 3, 4});
  std::vector<float> results[2];
  for (const emu::Order order : {emu::Order::ascending, emu::Order::descending}) {
    const emu::OptionsScope use({.order = order});
    const Floats out(std::vector<float>(4, 0.0f));
    emu::run("k", 4, 1, add_neighbour, static_cast<const float*>(x.data()), out.data());
    results[order == emu::Order::ascending] = out.values();
  }
  CHECK(wengert::testing::first_difference(results[0], results[1]) >= 0);
  // Without an order given, launches take turns.
  const Floats first(std::vector<float>(4, 0.0f)), second(std::vector<float>(4, 0.0f));
  for (const Floats* out : {&first, &second})
    emu::run("k", 4, 1, add_neighbour, static_cast<const float*>(x.data()), out->data());
  CHECK(wengert::testing::first_difference(first.values(), second.values()) >= 0);
}

TEST_CASE("emulator: fresh device memory is full of NaN, recycled or not") {
  for (int i = 0; i < 2; ++i) {
    const Floats out(100);
    for (const float value : out.values()) CHECK(std::isnan(value));
    emu::run("k", 4, 32, count_up, out.data(), 100);
  }
}

TEST_CASE("emulator: addresses of the host are no arguments, and copies know their direction") {
  float host[4] = {};
  CHECK_THROWS_WITH_AS(emu::run("k", 1, 4, count_up, host, 4), doctest::Contains("k: "), KernelFault);
  const Floats out(4);
  wengert::Memory& memory = wengert::backend("cuda-emulated").memory();
  CHECK_THROWS_AS(memory.upload(host, host, 4), KernelFault);
  CHECK_THROWS_AS(memory.download(host, host, 4), KernelFault);
  CHECK_THROWS_AS(memory.copy(out.data(), host, 4), KernelFault);
}

TEST_CASE("emulator: accesses that end a process" * doctest::skip()) {
  const std::string work = child_work();
  const Floats pages(2048), few(std::vector<float>(5, 1.0f)),
      out(1);  // the first are whole pages, between two that trap
  const auto write = [&](std::int64_t i) { emu::run("k", 1, 1, write_at, pages.data(), i); };
  const auto read = [&](const float* x, std::int64_t i) { emu::run("k", 1, 1, read_at, x, i, out.data()); };
  if (work == "none") write(2047), read(pages.data(), 0), read(few.data(), 4);
  if (work == "write behind") write(2048);
  if (work == "write before") write(-1);
  if (work == "write far away") write(std::int64_t{1} << 40);
  if (work == "read behind") read(pages.data(), 2048);
  if (work == "read before") read(pages.data(), -1);
  if (work == "host reads") CHECK(*static_cast<volatile float*>(few.data()) == 1.0f);
  if (work == "host writes") *static_cast<volatile float*>(few.data()) = 1.0f;
  if (work == "read behind few") read(few.data(), 5);
  if (work == "read at the end of the block") read(few.data(), 15);
  if (work == "read what was given back") {
    const float* gone = Floats(5).data();
    read(gone, 0);
  }
}

TEST_CASE("emulator: accesses outside tensors, and those of the host, end in a signal or a sanitizer's report") {
  const auto ending = [](const char* work) { return in_child("emulator: accesses that end a process", work); };
  CHECK(ending("none").good());
  for (const char* work :
       {"write behind", "write before", "write far away", "read behind", "read before", "host reads", "host writes"}) {
    CAPTURE(work);
    CHECK(!ending(work).good());
  }
#ifdef WENGERT_ASAN  // knows every byte
  for (const char* work : {"read behind few", "read at the end of the block", "read what was given back"}) {
    CAPTURE(work);
    CHECK(ending(work).output.find("AddressSanitizer") != std::string::npos);
  }
#endif
}
