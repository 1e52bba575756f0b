#pragma once
/// A child process that answers a line with a line.

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace wengert::benchmarks {

class Child {
 public:
  /// Starts `command` (looked up in PATH) with `environment` on top of this process's own. Throws IoError.
  Child(const std::vector<std::string>& command, const std::vector<std::pair<std::string, std::string>>& environment);
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  /// Ends the child by closing its input, and waits for it.
  ~Child();

  /// The next line of the child's output. Throws IoError when the child has ended.
  std::string receive();
  std::string ask(const std::string& line);

 private:
  std::string name_;
  int pid_ = -1;
  std::FILE* to_ = nullptr;
  std::FILE* from_ = nullptr;
};

/// The folder of this program.
std::string program_folder();
/// Restricts this process and its children to the last `count` CPUs it may use. Throws IoError when it has fewer.
void pin_to_cpus(int count);

}  // namespace wengert::benchmarks
