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
  if (is_forward(what) || what == Work::block_forward_backward) return "";
  return row.sparse ? "sparse" : "dense";
}

/// A command and what the machine could do meanwhile, as lines of a shell.
std::string run_of(const std::string& command, const std::string& limits) {
  return fmt::format("    {}\n    # {}\n", command, limits);
}

/// GFLOP/s.
double speed(const Row& row, double ms) { return 1e-6 * row.flops / ms; }

}  // namespace

std::string Surroundings::limits_text() const {
  std::string text = fmt::format("Memory: {}.", limits.memory.text());
  if (!gather.empty()) text += " Random rows, prefetched:";
  for (const auto& [config, rate] : gather) text += fmt::format(" {} {:.1f}", config, rate);
  if (!gather.empty()) text += " GB/s.";
  if (limits.matmul > 0) text += fmt::format(" Matrix products: {:.0f} GFLOP/s.", limits.matmul);
  return text;
}

std::string line_of(const Row& row) {
  std::string text = fmt::format("{:<8} {:<7} {:<20} {:<28} {:<6} {:>8} ms, ours {:>6} ms: {:>5} times ({} to {})",
                                 row.config, row.ids, row.work, row.opponent, gradient_of(row), number(row.opponent_ms),
                                 number(row.ours_ms), number(row.ratio), number(row.ratio_low), number(row.ratio_high));
  if (row.ratio_over_sparse)
    text += fmt::format("; over its sparse gradients {} times", number(*row.ratio_over_sparse));
  if (!row.is_transformer()) return text + fmt::format("; {:.0f} % of the memory's speed", 100 * row.fraction);
  return text + fmt::format("; {:.0f} and {:.0f} GFLOP/s, {:.0f} % of the machine's speed; {:.0f} and {:.0f} MB",
                            speed(row, row.opponent_ms), speed(row, row.ours_ms), 100 * row.fraction, row.opponent_mb,
                            row.ours_mb);
}

std::string json_of(const std::vector<Row>& rows, const Surroundings& surroundings) {
  const MemoryLimit& memory = surroundings.limits.memory;
  nlohmann::ordered_json out;
  out["command"] = surroundings.command;
  out["date"] = surroundings.when;
  out["processor"] = surroundings.processor;
  out["limits"] = surroundings.limits_text();
  out["memory"] = {{"copy", memory.copy},
                   {"streaming_copy", memory.streaming_copy},
                   {"read", memory.read},
                   {"update", memory.update},
                   {"threads", memory.threads}};
  for (const auto& [config, rate] : surroundings.gather) out["memory"]["random_rows"][config] = rate;
  if (surroundings.limits.matmul > 0) out["matmul_gflops"] = surroundings.limits.matmul;
  if (!surroundings.earlier.empty()) out["earlier"] = surroundings.earlier;
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
    if (row.is_transformer()) {
      entry["flops"] = row.flops;
      entry["opponent_gflops"] = speed(row, row.opponent_ms);
      entry["ours_gflops"] = speed(row, row.ours_ms);
      entry["opponent_peak_mb"] = row.opponent_mb;
      entry["ours_peak_mb"] = row.ours_mb;
    }
    out["rows"].push_back(entry);
  }
  return out.dump(1) + "\n";
}

std::vector<Row> rows_of(const std::string& json, std::vector<std::string>& earlier) {
  try {
    const auto in = nlohmann::json::parse(json);
    earlier = in.value("earlier", std::vector<std::string>());
    earlier.push_back(run_of(in.at("command"), in.at("limits")));
    std::vector<Row> rows;
    for (const auto& entry : in.at("rows")) {
      Row row{.config = entry.at("config"),
              .ids = entry.at("ids"),
              .work = entry.at("work"),
              .backend = entry.at("backend"),
              .arch = entry.at("arch"),
              .threads = entry.at("threads"),
              .opponent = entry.at("opponent"),
              .sparse = entry.at("gradients") == "sparse",
              .opponent_ms = entry.at("opponent_ms"),
              .ours_ms = entry.at("ours_ms"),
              .ratio = entry.at("ratio"),
              .ratio_low = entry.at("ratio_low"),
              .ratio_high = entry.at("ratio_high"),
              .bytes = entry.at("bytes"),
              .fraction = entry.at("fraction"),
              .flops = entry.value("flops", 0.0),
              .opponent_mb = entry.value("opponent_peak_mb", 0.0),
              .ours_mb = entry.value("ours_peak_mb", 0.0)};
      if (entry.contains("ratio_over_sparse")) row.ratio_over_sparse = entry["ratio_over_sparse"].get<double>();
      rows.push_back(row);
    }
    return rows;
  } catch (const nlohmann::json::exception& error) {
    throw Error(fmt::format("the rows of an earlier run: {}", error.what()));
  }
}

namespace {

std::string embedding_text(const Surroundings& surroundings) {
  return "\n\"memory\" is the time that the bytes which have to move at least (each needed row in, each result out, "
         "once) would\n"
         "take at the memory's speed above, as a fraction of our time; it exceeds 100 % where the data fits into a "
         "cache.\n\n"
         "P0: libtorch as installed. P1: its malloc told to keep its memory. P2: P1 with dropout's mask drawn at about "
         "1 ns\n"
         "an element. PyTorch: from PyPI; eager, the optimisers `foreach` and `fused`, and `compile` (torch.compile of "
         "the layer\n"
         "and the fused optimiser).\n\n```\n" +
         surroundings.account + "```\n";
}

const char* transformer_text =
    "\nblock: one block of GPT-2 (causal, norms first, gelu in its tanh form), recorded, with dropout 0.1. gpt2: ids, "
    "forward,\n"
    "loss, backward and a step of AdamW over a whole model, float32, without dropout; with the token table as head "
    "(tied) or\n"
    "another one. `lazy`: of the token table only the rows in the batch step; its opponents are dense AdamW, and "
    "sparse "
    "gradients\n"
    "of that table with SparseAdam. PyTorch: scaled_dot_product_attention, AdamW fused or foreach; `compile` is "
    "torch.compile of\n"
    "the block, `chunked` its linear_cross_entropy by chunks of rows with fused AdamW. GFLOP/s: of the matrix "
    "products, "
    "attention\n"
    "as far as it is causal. \"limit\": the time for these at the speed of the fastest matrix product of ours and for "
    "the\n"
    "optimiser's bytes at the memory's, as a fraction of our time. Peak: resident memory at most (VmHWM) of a process "
    "that did\n"
    "this row alone, libraries included.\n";

/// The lines of a table's head and of its rule.
std::string head_of(const Configuration& c) {
  if (c.blocks == 0)
    return fmt::format(
        "V {}, L {}, d {}, B {}, T {}.\n\n"
        "| work | opponent | gradients | opponent ms | ours ms | times faster | over sparse gradients | memory |\n"
        "|---|---|---|---|---|---|---|---|\n",
        c.vocabulary, c.limit, c.width, c.batch, c.length);
  std::string text = fmt::format("d {}, {} heads, B {}, T {}", c.width, c.heads, c.batch, c.length);
  if (c.vocabulary > 0) text += fmt::format(", V {}, L {}, {} blocks", c.vocabulary, c.limit, c.blocks);
  return text +
         ".\n\n| work | backend | threads | opponent | gradients | opponent ms | ours ms | times faster | over sparse "
         "gradients | opponent GFLOP/s | ours | limit | opponent peak MB | ours |\n"
         "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n";
}

std::string line_of_table(const Row& row) {
  const std::string times =
      fmt::format("{} | {} | {} | {} | {} ({} to {}) | {}", row.opponent, gradient_of(row), number(row.opponent_ms),
                  number(row.ours_ms), number(row.ratio), number(row.ratio_low), number(row.ratio_high),
                  row.ratio_over_sparse ? number(*row.ratio_over_sparse) : "");
  if (!row.is_transformer()) return fmt::format("| {} | {} | {:.0f} % |\n", row.work, times, 100 * row.fraction);
  return fmt::format("| {} | {} | {} | {} | {:.0f} | {:.0f} | {:.0f} % | {:.0f} | {:.0f} |\n", row.work, row.backend,
                     row.threads, times, speed(row, row.opponent_ms), speed(row, row.ours_ms), 100 * row.fraction,
                     row.opponent_mb, row.ours_mb);
}

}  // namespace

std::string markdown_of(const std::vector<Row>& rows, const Surroundings& surroundings, const std::string& picture) {
  const auto transformer = [](const Row& row) { return row.is_transformer(); };
  const bool some = std::any_of(rows.begin(), rows.end(), transformer),
             stacks = !std::all_of(rows.begin(), rows.end(), transformer);
  std::string text =
      stacks ? "# The embedding stack against libtorch and PyTorch\n\n" : "# Transformers against PyTorch\n\n";
  if (!picture.empty()) text += fmt::format("![How many times faster]({})\n\n", picture);
  text += fmt::format("Made on {}, on {}, by\n\n", surroundings.when, surroundings.processor);
  for (const std::string& run : surroundings.earlier) text += run;
  text += run_of(surroundings.command, surroundings.limits_text());
  text +=
      "\nBoth sides run on the same CPUs, a round of one and a round of the other; milliseconds are medians of single "
      "steps with\n"
      "fresh ids, ratios those of the medians, and in brackets the quartiles of the rounds' ratios. Tape, checks and "
      "allocator\n"
      "are included. A ratio of row-sparse work over dense gradients stands beside the one over sparse gradients.\n";
  if (stacks) text += embedding_text(surroundings);
  if (some) text += transformer_text;

  std::string section;
  for (const Row& row : rows) {
    const std::string here = fmt::format("{}, {} ids", row.config, row.ids);
    if (here != section) text += fmt::format("\n## {}\n\n{}", here, head_of(configuration(row.config)));
    section = here;
    text += line_of_table(row);
  }
  return text;
}

}  // namespace wengert::benchmarks
