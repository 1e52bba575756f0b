#pragma once
/// The memory of the emulated device. The addresses that it hands out belong to pages that trap: host code that follows
/// one ends in a signal. What they stand for lies elsewhere, and kernels and copies are given that place.

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace wengert::emulator {

class DeviceSpace {
 public:
  DeviceSpace();
  DeviceSpace(const DeviceSpace&) = delete;
  DeviceSpace& operator=(const DeviceSpace&) = delete;

  /// A block, aligned to 64 as `bytes` are. One of 4096 bytes or more ends where a page begins that traps, and if its
  /// bytes are a multiple of 4096, begins where such a page ends; smaller ones, of which there may be millions, lie
  /// side by side. Throws BackendError when it cannot.
  void* allocate(std::size_t bytes);
  void release(void* address, std::size_t bytes) noexcept;

  /// Where the bytes of a device address really are; null for null. Throws KernelFault, with `who` in its text, for an
  /// address that is not the device's.
  const void* reach(const char* who, const void* address) const;
  void* reach(const char* who, void* address) const {
    return const_cast<void*>(reach(who, static_cast<const void*>(address)));
  }

 private:
  std::size_t take_pages(std::size_t bytes);

  char* handed_out_;
  char* real_;
  std::mutex mutex_;
  std::size_t used_;
  std::size_t shelf_ = 0, shelf_end_ = 0;                 // where the next small block comes from
  std::map<std::size_t, std::vector<std::size_t>> free_;  // by bytes: offsets
};

DeviceSpace& device_space();

}  // namespace wengert::emulator
