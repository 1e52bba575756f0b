#include "process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>

#include "wengert/error.hpp"

extern char** environ;  // NOLINT(readability-redundant-declaration): not every libc declares it

namespace wengert::benchmarks {

Child::Child(const std::vector<std::string>& command,
             const std::vector<std::pair<std::string, std::string>>& environment)
    : name_(command.front()) {
  std::signal(SIGPIPE, SIG_IGN);  // a child that has died shows when its answer is read
  int down[2], up[2];
  // Another child that had a copy of our end would keep this one waiting for its end.
  if (pipe2(down, O_CLOEXEC) != 0 || pipe2(up, O_CLOEXEC) != 0)
    throw IoError(fmt::format("pipe: {}", std::strerror(errno)));

  std::vector<std::string> variables;
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view text(*entry);
    bool replaced = false;
    for (const auto& [name, value] : environment) replaced |= text.starts_with(name + "=");
    if (!replaced) variables.emplace_back(text);
  }
  for (const auto& [name, value] : environment) variables.push_back(name + "=" + value);
  std::vector<char*> arguments, settings;
  for (const std::string& text : command) arguments.push_back(const_cast<char*>(text.c_str()));
  for (const std::string& text : variables) settings.push_back(const_cast<char*>(text.c_str()));
  arguments.push_back(nullptr);
  settings.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, down[0], 0);
  posix_spawn_file_actions_adddup2(&actions, up[1], 1);
  const int status = posix_spawnp(&pid_, name_.c_str(), &actions, nullptr, arguments.data(), settings.data());
  posix_spawn_file_actions_destroy(&actions);
  close(down[0]);
  close(up[1]);
  to_ = fdopen(down[1], "w");
  from_ = fdopen(up[0], "r");
  if (status == 0) return;
  std::fclose(to_);
  std::fclose(from_);
  throw IoError(fmt::format("cannot start \"{}\": {}", name_, std::strerror(status)));
}

Child::~Child() {
  std::fclose(to_);
  std::fclose(from_);
  waitpid(pid_, nullptr, 0);
}

std::string Child::receive() {
  std::string line;
  for (int c = std::fgetc(from_); c != '\n'; c = std::fgetc(from_)) {
    if (c == EOF) throw IoError(fmt::format("{}: ended without an answer", name_));
    line += static_cast<char>(c);
  }
  return line;
}

std::string Child::ask(const std::string& line) {
  std::fputs((line + "\n").c_str(), to_);
  std::fflush(to_);
  return receive();
}

std::string program_folder() { return std::filesystem::read_symlink("/proc/self/exe").parent_path().string(); }

void pin_to_cpus(int count) {
  cpu_set_t allowed, chosen;
  CPU_ZERO(&chosen);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) throw IoError("sched_getaffinity failed");
  int left = count;
  for (int cpu = CPU_SETSIZE - 1; cpu >= 0 && left > 0; --cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    CPU_SET(cpu, &chosen);
    --left;
  }
  if (left > 0)
    throw IoError(fmt::format("--threads: {} threads need as many CPUs; {} are allowed", count, count - left));
  if (sched_setaffinity(0, sizeof chosen, &chosen) != 0) throw IoError("sched_setaffinity failed");
}

}  // namespace wengert::benchmarks
