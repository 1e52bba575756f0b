// The work of configurations.hpp done by Wengert, for `compare`, which starts this program and tells it what to do, a
// line at a time, as it tells the opponents:
//
//   wengert_peer CONFIG IDS THREADS BACKEND   says who it is
//   prepare WORK                              "ok", or why not
//   run N                                     milliseconds of each of N steps
//   memory                                    megabytes (10^6 bytes) that were resident at most

#include <fmt/format.h>

#include <fstream>
#include <iostream>
#include <sstream>

#include "ours.hpp"

namespace wengert::benchmarks {
namespace {

double peak_memory_mb() {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;) {
    double kib = 0.0;
    if (word == "VmHWM:" && file >> kib) return 1.024e-3 * kib;
  }
  throw IoError("/proc/self/status: no VmHWM");
}

void answer(const std::string& text) { std::cout << text << std::endl; }

void serve(const std::string& name, const std::string& kind, const std::string& backend) {
  set_backend(backend);
  const Configuration& c = configuration(name);
  const std::unique_ptr<OurModel> model = make_ours(c);
  IdStream stream(c, kind, 1);
  answer(fmt::format("Wengert, {}", backend));
  for (std::string line, what; std::getline(std::cin, line);) {
    std::istringstream words(line);
    words >> what;
    if (what == "prepare") {
      words >> what;
      model->prepare(work(what));
      answer("ok");
    } else if (what == "memory") {
      answer(fmt::format("{:.6g}", peak_memory_mb()));
    } else {
      int count = 0;
      words >> count;
      std::string times;
      for (int i = 0; i < count; ++i) {
        const Tensor ids = model->ids(stream);
        times += fmt::format("{:.6g} ", 1e3 * model->step(ids));
      }
      answer(times);
    }
  }
}

}  // namespace
}  // namespace wengert::benchmarks

int main(int argc, char** argv) {
  try {
    if (argc != 5) throw wengert::Error("usage: wengert_peer CONFIG IDS THREADS BACKEND");
    wengert::set_num_threads(std::stoi(argv[3]));
    wengert::benchmarks::serve(argv[1], argv[2], argv[4]);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "wengert_peer: {}\n", error.what());
    return 1;
  }
}
