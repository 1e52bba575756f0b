// The device behind runtime.hpp: the driver, one stream, device memory. docs/cuda.md says why the order of work is
// right.

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>

#include "check.hpp"
#include "runtime.hpp"
#include "wengert/error.hpp"

namespace wengert::cuda::inline WENGERT_CUDA_BUILD {

namespace {

constexpr int least_capability = 75;  // of the architectures in CMakeLists.txt

struct Device {
  cudaStream_t stream = nullptr;
  int multiprocessors = 0;
};
Device device;

std::string version(int number) { return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10); }

// Why there is no device. The driver is asked by name first: without it, the CUDA runtime must not be called at all.
[[noreturn]] void refuse(const std::string& reason, const std::string& found) {
  throw BackendError("cuda: " + reason + "; required: a driver for CUDA " + version(CUDART_VERSION) +
                     " and a device of compute capability " + std::to_string(least_capability / 10) + "." +
                     std::to_string(least_capability % 10) + " or later; found: " + found);
}

std::string find_driver() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!driver) refuse(dlerror(), "no driver");
  int number = 0;
  const auto get_version = reinterpret_cast<int (*)(int*)>(dlsym(driver, "cuDriverGetVersion"));
  if (!get_version || get_version(&number) != 0) return "a driver that does not tell its version";
  return "a driver for CUDA " + version(number);
}

// Uploads go through page-locked buffers: the copy into one is done when `upload` returns, the copy out of it is
// queued.
class Staging {
 public:
  void upload(void* to, const void* host, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    for (std::size_t done = 0; done < bytes; done += size) {
      Buffer& buffer = buffers_[next_++ % count];
      if (!buffer.data) {
        check(cudaEventCreateWithFlags(&buffer.free, cudaEventDisableTiming), "upload");
        check(cudaMallocHost(&buffer.data, size), "upload");
      }
      const std::size_t part = std::min(size, bytes - done);
      check(cudaEventSynchronize(buffer.free), "upload");
      std::memcpy(buffer.data, static_cast<const char*>(host) + done, part);
      check(cudaMemcpyAsync(static_cast<char*>(to) + done, buffer.data, part, cudaMemcpyHostToDevice, device.stream),
            "upload");
      check(cudaEventRecord(buffer.free, device.stream), "upload");
    }
  }

 private:
  struct Buffer {
    void* data = nullptr;
    cudaEvent_t free = nullptr;
  };
  // Many and small: a program that uploads a batch of ids in every step can be that many steps ahead of the device.
  static constexpr std::size_t count = 16, size = std::size_t{256} << 10;
  std::mutex mutex_;
  Buffer buffers_[count];
  std::size_t next_ = 0;
};

class DeviceMemory final : public Memory {
 public:
  DeviceMemory() : Memory("cuda", Layout::segments) {}
  bool host_visible() const override { return false; }
  void upload(void* to, const void* host, std::size_t bytes) override { staging_.upload(to, host, bytes); }
  void download(void* host, const void* from, std::size_t bytes) override {
    if (bytes == 0) return;
    check(cudaMemcpyAsync(host, from, bytes, cudaMemcpyDeviceToHost, device.stream), "download");
    check(cudaStreamSynchronize(device.stream), "download");
  }
  void copy(void* to, const void* from, std::size_t bytes) override {
    if (bytes == 0) return;
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, device.stream), "copy");
  }

 protected:
  void* system_allocate(std::size_t bytes) override {
    void* data = nullptr;
    const cudaError_t error = cudaMalloc(&data, bytes);
    if (error != cudaSuccess) check(error, "allocating ", (std::to_string(bytes) + " bytes").c_str());
    return data;
  }
  // Nobody to tell of an error: at the end of a process it means that the driver has gone, and before, that the device
  // has failed, which the next call reports. The wait is for queued work that still uses the block.
  void system_release(void* data, std::size_t /*bytes*/) noexcept override {
    if (cudaStreamSynchronize(device.stream) == cudaSuccess) cudaFree(data);
  }

 private:
  Staging staging_;
};

}  // namespace

void check(cudaError_t error, const char* what, const char* name) {
  if (error == cudaSuccess || error == cudaErrorCudartUnloading) return;
  cudaGetLastError();  // taken notice of: the next call must not find it
  throw BackendError(std::string("cuda: ") + what + name + ": " + cudaGetErrorString(error));
}

bool unloaded() { return cudaFree(nullptr) == cudaErrorCudartUnloading; }

std::string_view backend_name() { return "cuda"; }

void open() {
  const std::string found = find_driver();
  const auto require = [&](cudaError_t error) {
    if (error != cudaSuccess) refuse(cudaGetErrorString(error), found);
  };
  int devices = 0;
  require(cudaGetDeviceCount(&devices));
  if (devices == 0) refuse(cudaGetErrorString(cudaErrorNoDevice), found);

  // The first one that CUDA_VISIBLE_DEVICES leaves, which is every thread's device without being chosen.
  cudaDeviceProp properties;
  require(cudaGetDeviceProperties(&properties, 0));
  const int capability = 10 * properties.major + properties.minor;
  if (capability < least_capability)
    refuse("the device is too old", found + " and " + properties.name + " of compute capability " +
                                        std::to_string(properties.major) + "." + std::to_string(properties.minor));
  device.multiprocessors = properties.multiProcessorCount;
  require(cudaStreamCreateWithFlags(&device.stream, cudaStreamNonBlocking));
}

Memory& memory() {
  // Never destroyed: static tensors may outlive it otherwise.
  static Memory& instance = *new DeviceMemory;
  return instance;
}

void* stream() { return device.stream; }
int multiprocessors() { return device.multiprocessors; }

}  // namespace wengert::cuda::inline WENGERT_CUDA_BUILD
