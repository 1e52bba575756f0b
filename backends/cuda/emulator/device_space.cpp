#include "device_space.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include "emulator.hpp"

namespace wengert::emulator {

namespace {

constexpr std::size_t space = std::size_t{32} << 30;  // of addresses
constexpr std::size_t page = 4096;

std::size_t in_pages(std::size_t bytes) { return (bytes + page - 1) / page * page; }

char* reserve() {
  void* memory = mmap(nullptr, space, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw BackendError("emulated device: cannot reserve addresses");
  return static_cast<char*>(memory);
}

}  // namespace

DeviceSpace::DeviceSpace() : handed_out_(reserve()), real_(reserve()), used_(page) {}

// Whole pages for `bytes`, and one that traps behind them.
std::size_t DeviceSpace::take_pages(std::size_t bytes) {
  const std::size_t first = used_, inside = in_pages(bytes);
  if (bytes > space || inside + page > space - used_ || mprotect(real_ + first, inside, PROT_READ | PROT_WRITE) != 0)
    throw BackendError(fmt::format("emulated device: cannot allocate {} bytes", bytes));
  used_ += inside + page;
  return first;
}

void* DeviceSpace::allocate(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (auto& free = free_[bytes]; !free.empty()) {
    const std::size_t offset = free.back();
    if (bytes >= page) mprotect(real_ + offset / page * page, in_pages(bytes), PROT_READ | PROT_WRITE);
    free.pop_back();
    return handed_out_ + offset;
  }
  if (bytes >= page) return handed_out_ + take_pages(bytes) + (in_pages(bytes) - bytes);
  if (shelf_end_ - shelf_ < bytes) {
    constexpr std::size_t shelf_bytes = 256 * page;
    shelf_ = take_pages(shelf_bytes);
    shelf_end_ = shelf_ + shelf_bytes;
  }
  shelf_ += bytes;
  return handed_out_ + shelf_ - bytes;
}

void DeviceSpace::release(void* address, std::size_t bytes) noexcept {
  const auto offset = static_cast<std::size_t>(static_cast<char*>(address) - handed_out_);
  if (bytes >= page) {
    madvise(real_ + offset / page * page, in_pages(bytes), MADV_DONTNEED);
    mprotect(real_ + offset / page * page, in_pages(bytes), PROT_NONE);
  }
  const std::lock_guard lock(mutex_);
  try {
    free_[bytes].push_back(offset);
  } catch (const std::bad_alloc&) {  // these addresses stay unused
  }
}

const void* DeviceSpace::reach(const char* who, const void* address) const {
  if (!address) return nullptr;
  const std::ptrdiff_t offset = static_cast<const char*>(address) - handed_out_;
  if (offset < 0 || offset >= static_cast<std::ptrdiff_t>(space))
    throw KernelFault(fmt::format("{}: {} is not an address of the device", who, fmt::ptr(address)));
  return real_ + offset;
}

DeviceSpace& device_space() {
  static DeviceSpace& instance = *new DeviceSpace;  // never destroyed: static tensors may outlive it otherwise
  return instance;
}

}  // namespace wengert::emulator
