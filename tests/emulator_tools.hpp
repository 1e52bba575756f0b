#pragma once
/// What tests of the emulator share: device memory without tensors, and programs that are expected to die.

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
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

/// How a process ends, and what it writes to its standard error.
struct Ending {
  int status = 0;
  std::string output;
  bool good() const { return WIFEXITED(status) && WEXITSTATUS(status) == 0; }
};
/// Runs the skipped test case `name` of this program in a process of its own, which finds `work` by `child_work`. (A
/// child of fork alone would not do: the sanitizers do not trust one whose parent had threads.)
inline Ending in_child(const char* name, const std::string& work) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], 1);
    dup2(ends[1], 2);
    close(ends[0]);
    setenv("WENGERT_TEST_WORK", work.c_str(), 1);
    const std::string filter = std::string("--test-case=") + name;
    execl("/proc/self/exe", "wengert_tests", "--no-skip", filter.c_str(), static_cast<char*>(nullptr));
    _exit(127);
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
inline std::string child_work() {
  const char* work = std::getenv("WENGERT_TEST_WORK");
  return work ? work : "";
}

}  // namespace wengert::testing
