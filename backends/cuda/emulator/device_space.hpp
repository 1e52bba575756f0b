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

  /// A block whose last byte is followed by a page that traps, and whose first byte, if `bytes` is a multiple of 4096,
  /// is preceded by one. `bytes` is a multiple of 64. Throws BackendError when it cannot.
  void* allocate(std::size_t bytes);
  void release(void* address, std::size_t bytes) noexcept;

  /// Where the bytes of a device address really are; null for null. Throws KernelFault, with `who` in its text, for an
  /// address that is not the device's.
  const void* reach(const char* who, const void* address) const;
  void* reach(const char* who, void* address) const {
    return const_cast<void*>(reach(who, static_cast<const void*>(address)));
  }

 private:
  char* handed_out_;
  char* real_;
  std::mutex mutex_;
  std::size_t used_;
  std::map<std::size_t, std::vector<std::size_t>> free_;  // by bytes: offsets
};

DeviceSpace& device_space();

}  // namespace wengert::emulator
