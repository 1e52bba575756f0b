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

void* DeviceSpace::allocate(std::size_t bytes) {
  const std::size_t inside = in_pages(bytes);
  const std::lock_guard lock(mutex_);
  std::size_t first = used_;
  auto& free = free_[inside];
  if (!free.empty()) {
    first = free.back();
  } else if (bytes > space || inside + page > space - used_) {
    throw BackendError(fmt::format("emulated device: cannot allocate {} bytes", bytes));
  }
  if (mprotect(real_ + first, inside, PROT_READ | PROT_WRITE) != 0)
    throw BackendError(fmt::format("emulated device: cannot allocate {} bytes", bytes));
  if (!free.empty())
    free.pop_back();
  else
    used_ += inside + page;
  return handed_out_ + first + (inside - bytes);
}

void DeviceSpace::release(void* address, std::size_t bytes) noexcept {
  const std::size_t inside = in_pages(bytes);
  const std::size_t first = static_cast<std::size_t>(static_cast<char*>(address) - handed_out_) - (inside - bytes);
  madvise(real_ + first, inside, MADV_DONTNEED);
  mprotect(real_ + first, inside, PROT_NONE);
  const std::lock_guard lock(mutex_);
  try {
    free_[inside].push_back(first);
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
