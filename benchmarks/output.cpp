// The rows as lines, JSON and Markdown.

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "measure.hpp"

namespace wengert::benchmarks {

namespace {

std::string number(double value) {
  if (value >= 100) return fmt::format("{:.0f}", value);
  if (value >= 10) return fmt::format("{:.1f}", value);
  if (value >= 1) return fmt::format("{:.2f}", value);
  return fmt::format("{:.3f}", value);
}

std::string gradient_of(const Row& row) {
  const Work what = work(row.work);
  if (what < Work::forward_backward) return "";
  return row.sparse ? "sparse" : "dense";
}

}  // namespace

std::string line_of(const Row& row) {
  std::string text = fmt::format("{:<8} {:<7} {:<20} {:<28} {:<6} {:>8} ms, ours {:>6} ms: {:>5} times ({} to {})",
                                 row.config, row.ids, row.work, row.opponent, gradient_of(row), number(row.opponent_ms),
                                 number(row.ours_ms), number(row.ratio), number(row.ratio_low), number(row.ratio_high));
  if (row.ratio_over_sparse)
    text += fmt::format("; over its sparse gradients {} times", number(*row.ratio_over_sparse));
  return text + fmt::format("; {:.0f} % of the memory's speed", 100 * row.fraction);
}

std::string json_of(const std::vector<Row>& rows, const Surroundings& surroundings) {
  nlohmann::ordered_json out;
  out["command"] = surroundings.command;
  out["date"] = surroundings.when;
  out["processor"] = surroundings.processor;
  out["memory"] = {{"copy", surroundings.limit.copy},
                   {"streaming_copy", surroundings.limit.streaming_copy},
                   {"read", surroundings.limit.read},
                   {"update", surroundings.limit.update},
                   {"threads", surroundings.limit.threads}};
  for (const auto& [config, rate] : surroundings.gather) out["memory"]["random_rows"][config] = rate;
  out["rows"] = nlohmann::ordered_json::array();
  for (const Row& row : rows) {
    nlohmann::ordered_json entry = {{"config", row.config},
                                    {"ids", row.ids},
                                    {"work", row.work},
                                    {"backend", row.backend},
                                    {"arch", row.arch},
                                    {"threads", row.threads},
                                    {"opponent", row.opponent},
                                    {"gradients", gradient_of(row)},
                                    {"opponent_ms", row.opponent_ms},
                                    {"ours_ms", row.ours_ms},
                                    {"ratio", row.ratio},
                                    {"ratio_low", row.ratio_low},
                                    {"ratio_high", row.ratio_high},
                                    {"bytes", row.bytes},
                                    {"fraction", row.fraction}};
    if (row.ratio_over_sparse) entry["ratio_over_sparse"] = *row.ratio_over_sparse;
    out["rows"].push_back(entry);
  }
  return out.dump(1) + "\n";
}

std::string markdown_of(const std::vector<Row>& rows, const Surroundings& surroundings, const std::string& picture) {
  std::string text = "# The embedding stack against libtorch and PyTorch\n\n";
  if (!picture.empty()) text += fmt::format("![How many times faster]({})\n\n", picture);
  text += fmt::format(
      "Made on {} by\n\n    {}\n\non {}, {} thread{}. Both sides run on the same CPUs, a round of one and a round of "
      "the other;\n"
      "milliseconds are medians of single steps with fresh ids, ratios those of the medians, and in brackets the "
      "quartiles of\n"
      "the rounds' ratios. Tape, checks and allocator are included. A ratio of row-sparse work over dense gradients "
      "stands\n"
      "beside the one over sparse gradients. \"memory\" is the time that the bytes which have to move at least (each\n"
      "needed row in, each result out, once) would take at the speed below, as a fraction of our time; it exceeds 100 "
      "%\n"
      "where the data fits into a cache.\n\nMemory: {}. Random rows, prefetched:",
      surroundings.when, surroundings.command, surroundings.processor, surroundings.limit.threads,
      surroundings.limit.threads == 1 ? "" : "s", surroundings.limit.text());
  for (const auto& [config, rate] : surroundings.gather) text += fmt::format(" {} {:.1f}", config, rate);
  text +=
      " GB/s.\n\nP0: libtorch as installed. P1: its malloc told to keep its memory. P2: P1 with dropout's mask drawn "
      "at about 1 ns\n"
      "an element. PyTorch: from PyPI; eager, the optimisers `foreach` and `fused`, and `compile` (torch.compile of "
      "the layer\n"
      "and the fused optimiser).\n\n```\n" +
      surroundings.account + "```\n";

  std::string section;
  for (const Row& row : rows) {
    const std::string here = fmt::format("{}, {} ids", row.config, row.ids);
    if (here != section) {
      const Configuration& c = configuration(row.config);
      text += fmt::format(
          "\n## {}\n\nV {}, L {}, d {}, B {}, T {}.\n\n"
          "| work | opponent | gradients | opponent ms | ours ms | times faster | over sparse gradients | memory |\n"
          "|---|---|---|---|---|---|---|---|\n",
          here, c.vocabulary, c.limit, c.width, c.batch, c.length);
      section = here;
    }
    text += fmt::format("| {} | {} | {} | {} | {} | {} ({} to {}) | {} | {:.0f} % |\n", row.work, row.opponent,
                        gradient_of(row), number(row.opponent_ms), number(row.ours_ms), number(row.ratio),
                        number(row.ratio_low), number(row.ratio_high),
                        row.ratio_over_sparse ? number(*row.ratio_over_sparse) : "", 100 * row.fraction);
  }
  return text;
}

}  // namespace wengert::benchmarks
