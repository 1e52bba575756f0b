#pragma once
/// What tests of the emulator share: device memory without tensors, and programs that are expected to die.

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "wengert/backend.hpp"

namespace wengert::testing {

/// Memory of the device for `count` floats, unwritten.
class Floats {
 public:
  explicit Floats(std::size_t count) : count_(count), block_(memory().allocate(count * sizeof(float))) {}
  explicit Floats(const std::vector<float>& values) : Floats(values.size()) {
    memory().upload(block_.data, values.data(), count_ * sizeof(float));
  }
  Floats(const Floats&) = delete;
  Floats& operator=(const Floats&) = delete;
  ~Floats() { memory().release(block_); }
  float* data() const { return static_cast<float*>(block_.data); }
  std::vector<float> values() const {
    std::vector<float> out(count_);
    memory().download(out.data(), block_.data, count_ * sizeof(float));
    return out;
  }
  std::size_t capacity() const { return block_.capacity / sizeof(float); }

 private:
  static Memory& memory() { return backend("cuda-emulated").memory(); }
  std::size_t count_;
  Memory::Block block_;
};

/// How a child process ends that runs `work`, and what it writes to its standard error.
struct Ending {
  int status = 0;
  std::string output;
  bool good() const { return WIFEXITED(status) && WEXITSTATUS(status) == 0; }
};
inline Ending in_child(const std::function<void()>& work) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], 2);
    close(ends[0]);
    for (const int signal : {SIGSEGV, SIGABRT}) std::signal(signal, SIG_DFL);  // not the test program's own
    work();
    std::exit(0);  // ThreadSanitizer gives its verdict there
  }
  close(ends[1]);
  Ending ending;
  char buffer[4096];
  for (ssize_t n = 0; (n = read(ends[0], buffer, sizeof buffer)) > 0;)
    ending.output.append(buffer, static_cast<std::size_t>(n));
  close(ends[0]);
  REQUIRE(waitpid(child, &ending.status, 0) == child);
  return ending;
}

}  // namespace wengert::testing
