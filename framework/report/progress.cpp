#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "wengert/report.hpp"

namespace wengert::report {

namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

std::string duration(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::min(std::ceil(seconds), 1e12));
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

std::size_t terminal_width(std::FILE* stream) {
  winsize size{};
  if (ioctl(fileno(stream), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

}  // namespace

struct Progress::State {
  std::string label;
  std::int64_t total, first, step;
  double plain_interval;
  std::FILE* stream;
  bool terminal, visible;
  bool open_line = false;
  Clock::time_point start = Clock::now(), next;

  /// Step, loss, rate and time left.
  std::string figures(double loss) const {
    const double elapsed = std::max(Seconds(Clock::now() - start).count(), 1e-9);
    const double rate = static_cast<double>(step - first) / elapsed;
    std::string text = fmt::format("{}/{}  loss {:.4f}  {:.{}f} steps/s", step, total, loss, rate, rate < 10 ? 2 : 0);
    if (step >= total)
      text += "  in " + duration(elapsed);
    else if (rate > 0)
      text += "  " + duration(static_cast<double>(total - step) / rate) + " left";
    return text;
  }

  void redraw(double loss) {
    const std::string text = figures(loss);
    std::string line = label + "  ";
    const std::size_t room = terminal_width(stream) - 1;  // a full last column would wrap on some terminals
    const std::size_t used = line.size() + text.size() + 4;
    if (room >= used + 10) {
      const std::size_t width = std::min<std::size_t>(room - used, 40);
      const double share =
          total > 0 ? std::clamp(static_cast<double>(step) / static_cast<double>(total), 0.0, 1.0) : 1.0;
      const auto filled = static_cast<std::size_t>(share * static_cast<double>(width));
      line += '[' + std::string(filled, '=') + std::string(width - filled, ' ') + "]  ";
    }
    line += text;
    if (line.size() > room) line.resize(room);
    fmt::print(stream, "\r{}\x1b[K", line);  // [K: clear to the end of the line
    std::fflush(stream);
    open_line = true;
  }

  void show(double loss) {
    if (terminal) {
      redraw(loss);
    } else {
      fmt::print(stream, "{}  {}\n", label, figures(loss));
      std::fflush(stream);
    }
    // A run of hours needs a sign of life, but not thousands of lines.
    const double elapsed = Seconds(Clock::now() - start).count();
    const double wait = terminal ? 0.1 : std::max(plain_interval, std::min(elapsed / 5, 60.0));
    next = Clock::now() + std::chrono::duration_cast<Clock::duration>(Seconds(wait));
  }
};

Progress::Progress(std::string_view label, std::int64_t total, const ProgressOptions& options)
    : state_(std::make_unique<State>()) {
  state_->label = label;
  state_->total = total;
  state_->first = state_->step = options.first;
  state_->plain_interval = options.plain_interval;
  state_->stream = options.stream ? options.stream : stderr;
  state_->visible = options.visible;
  state_->terminal = isatty(fileno(state_->stream)) == 1;
  const double wait = state_->terminal ? 0.1 : options.plain_interval;
  state_->next = state_->start + std::chrono::duration_cast<Clock::duration>(Seconds(wait));
}

Progress::~Progress() {
  if (state_->open_line) std::fputc('\n', state_->stream);
}

bool Progress::due(std::int64_t step) {
  state_->step = step;
  return state_->visible && (step == state_->total || Clock::now() >= state_->next);
}

void Progress::update(std::int64_t step, double loss) {
  if (due(step)) state_->show(loss);
}

void Progress::update(std::int64_t step, const Tensor& loss) {
  if (due(step)) state_->show(loss.item<double>());
}

}  // namespace wengert::report
