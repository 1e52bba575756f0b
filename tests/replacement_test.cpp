/// Files that are cut, and files that are replaced: the old content or the new, whatever fails in between.

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "../framework/core/tensor_impl.hpp"
#include "file_tools.hpp"
#include "tensor_tools.hpp"
#include "wengert/io.hpp"

using namespace wengert;
using namespace wengert::testing;
using io::load_safetensors;
using io::save_safetensors;

TEST_CASE("SER-06: a file that is cut anywhere says that it is shorter than it should be") {
  const TemporaryFolder folder;
  const std::string path = folder.file("cut.safetensors");
  save_safetensors({{"a", ones({4})}, {"b", ones({3}, DType::float64)}}, path, {.metadata = {{"k", "v"}}});
  const std::string whole = read_bytes(path);
  const std::size_t values = whole.size() - 40;
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < values; ++i) places.push_back(i);
  for (const std::size_t i : {0, 1, 23, 24, 39}) places.push_back(values + i);
  for (const std::size_t place : places) {
    CAPTURE(place);
    write_bytes(path, whole.substr(0, place));
    const std::size_t needed = place < 8 ? 8 : place < values ? values : whole.size();
    CHECK(error_of([&] { (void)load_safetensors(path); }) ==
          fmt::format("safetensors: cannot read \"{}\": file shorter than header says: need {}, have {}", path, needed,
                      place));
  }
  write_bytes(path, whole);
  CHECK(load_safetensors(path).size() == 2);
}

namespace {

/// A memory that fails to give its values back, as a device that is lost.
struct LostMemory final : Memory {
  LostMemory() : Memory("lost") {}
  bool host_visible() const override { return false; }
  void upload(void* /*to*/, const void* /*host*/, std::size_t /*bytes*/) override {}
  void download(void* /*host*/, const void* /*from*/, std::size_t /*bytes*/) override {
    throw BackendError("lost memory: read-back failed");
  }
  void copy(void* /*to*/, const void* /*from*/, std::size_t /*bytes*/) override {}

 protected:
  void* system_allocate(std::size_t /*bytes*/) override { throw BackendError("lost memory: no"); }
  void system_release(void* /*data*/, std::size_t /*bytes*/) noexcept override {}
};

}  // namespace

TEST_CASE("SER-06: whatever fails while a file is written, the old one stays") {
  const TemporaryFolder folder;
  const std::string path = folder.file("a.safetensors");
  save_safetensors({{"good", full({1000}, 3.0)}}, path);
  const std::string before = read_bytes(path);
  const auto check_old = [&] {
    CHECK(read_bytes(path) == before);
    CHECK(folder.count() == 1);
    CHECK(values_of(load_safetensors(path)[0].tensor) == Values(1000, 3.0));
  };

  LostMemory lost;
  float somewhere[4] = {};
  const Tensor unreadable = detail::TensorAccess::make(Storage::borrow(lost, somewhere, sizeof(somewhere)), {4},
                                                       DType::float32, current_backend());
  CHECK_THROWS_WITH_AS(save_safetensors({{"a", ones({1000})}, {"b", unreadable}}, path),
                       "lost memory: read-back failed", BackendError);
  check_old();

  // No room: the system refuses to let the file grow.
  const Tensor large = ones({100'000});
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{100'000, 100'000};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(2);
    const std::string text = error_of([&] { save_safetensors({{"large", large}}, path); });
    _exit(text == "safetensors: cannot write \"" + path + "\": File too large" ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  check_old();

  CHECK(error_of([&] {
          save_safetensors({{"a", ones({1})}}, folder.file("none/a.safetensors"));
        }) == "safetensors: cannot write \"" + folder.file("none/a.safetensors") + "\": No such file or directory");
  CHECK(error_of([&] {
          save_safetensors({{"a", ones({1})}}, folder.path.string());
        }) == "safetensors: cannot write \"" + folder.path.string() + "\": Is a directory");
  CHECK(error_of([&] {
          save_safetensors({{"a", ones({1})}}, "/dev/full");
        }) == "safetensors: cannot write \"/dev/full\": No space left on device");
  check_old();
}

TEST_CASE("SER-06: a replaced file keeps its permissions and the links that lead to it; threads do not mix") {
  const TemporaryFolder folder;
  const std::string path = folder.file("a.safetensors"), link = folder.file("link");
  save_safetensors({{"a", ones({1})}}, path);
  namespace fs = std::filesystem;
  fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
  fs::create_symlink("a.safetensors", link);
  save_safetensors({{"b", ones({1})}}, link);
  CHECK(fs::is_symlink(link));
  CHECK(fs::status(path).permissions() == (fs::perms::owner_read | fs::perms::owner_write));
  CHECK(load_safetensors(path)[0].name == "b");

  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&path, i] {
      const NamedTensors mine{{"t" + std::to_string(i), full({10'000}, i)}};
      for (int round = 0; round < 5; ++round) save_safetensors(mine, path);
    });
  for (std::thread& thread : threads) thread.join();
  const NamedTensors loaded = load_safetensors(path);
  REQUIRE(loaded.size() == 1);
  CHECK(values_of(loaded[0].tensor) == Values(10'000, loaded[0].name[1] - '0'));
  CHECK(folder.count() == 2);
}
