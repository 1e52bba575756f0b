#include "ours.hpp"

#include <fmt/format.h>

#include <chrono>
#include <map>
#include <set>

#include "wengert/backends/xsimd.hpp"

namespace wengert::benchmarks {

double OurModel::step(const Tensor& ids) {
  const auto start = std::chrono::steady_clock::now();
  run(ids);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Tensor OurModel::ids(IdStream& stream) const {
  const Configuration& c = configuration_;
  const std::int64_t length = c.length + (c.blocks > 0 ? 1 : 0);
  return tensor(stream.batch(c.batch * length), {c.batch, length});
}

std::unique_ptr<OurModel> make_ours(const Configuration& c) {
  if (c.blocks > 0) return make_our_transformer(c);
  return std::make_unique<OurLayer>(c);
}

OurLayer::OurLayer(const Configuration& c)
    : OurModel(c),
      embed_({.vocab_size = c.vocabulary, .max_seq_len = c.limit, .embed_dim = c.width, .dropout = dropout_p}),
      linear_({.in_features = c.width, .out_features = c.width}),
      upstream_(randn({c.batch, c.length, c.width})) {}

void OurLayer::prepare(Work work) {
  work_ = work;
  embed_.train(work != Work::eval_forward);
  optimizer_.reset();
  const NamedTensors tables = embed_.named_parameters();
  if (work == Work::sgd) optimizer_ = std::make_unique<optim::SGD>(tables, optim::SGDOptions{.lr = 1e-3});
  if (work == Work::adamw) optimizer_ = std::make_unique<optim::AdamW>(tables, optim::AdamWOptions{.lr = 1e-4});
  if (work == Work::lazy_adam)
    optimizer_ = std::make_unique<optim::Adam>(tables, optim::AdamOptions{.lr = 1e-4, .rows = optim::RowUpdate::lazy});
}

void OurLayer::run(const Tensor& ids) {
  switch (work_) {
    case Work::eval_forward: embed_(ids); return;
    case Work::train_forward: {
      const Tape tape;
      embed_(ids);
      return;
    }
    case Work::train_forward_linear: {
      const Tape tape;
      linear_(embed_(ids));
      return;
    }
    case Work::forward_backward: {
      {
        Tape tape;
        tape.backward(embed_(ids), {.seed = upstream_});
      }
      embed_.zero_grad();
      return;
    }
    default: {  // with an optimiser
      {
        Tape tape;
        tape.backward(embed_(ids), {.seed = upstream_});
      }
      optimizer_->step();
      optimizer_->zero_grad();
      return;
    }
  }
}

LeastTraffic least_traffic(const Configuration& c, Work work, double rows) {
  const auto row = 4.0 * static_cast<double>(c.width), tokens = static_cast<double>(c.tokens()),
             length = static_cast<double>(c.length);
  LeastTraffic least;
  if (c.blocks > 0) {
    if (work < Work::transformer_step) return least;
    const auto d = static_cast<double>(c.width), table = d * static_cast<double>(c.vocabulary);
    const double others = static_cast<double>(c.blocks) * (12 * d * d + 13 * d) + 2 * d;
    least.update = 4 * 7 * (others + table + d * static_cast<double>(c.limit));
    if (work == Work::transformer_step_untied) least.update += 4 * 6 * table + row * rows;
    if (work == Work::transformer_step_lazy) least.update += row * 7 * rows;
    return least;
  }
  least.forward = row * (rows + length + tokens);
  if (work == Work::train_forward_linear) least.forward += row * (2 * tokens + static_cast<double>(c.width));
  if (work < Work::forward_backward) return least;
  least.backward = row * (tokens + rows + length);
  if (work == Work::sgd) least.update = row * 3 * (rows + length);
  if (work == Work::lazy_adam) least.update = row * 7 * (rows + length);
  if (work == Work::adamw) least.update = row * (6 * static_cast<double>(c.vocabulary + c.limit) + rows + length);
  return least;
}

double different_ids(const Configuration& c, const std::string& kind) {
  constexpr int batches = 8;
  IdStream stream(c, kind, 1);
  double sum = 0.0;
  for (int i = 0; i < batches; ++i) {
    const std::vector<std::int64_t> ids = stream.batch(c.tokens());
    sum += static_cast<double>(std::set(ids.begin(), ids.end()).size());
  }
  return sum / batches;
}

double flops(const Configuration& c, Work work) {
  const auto d = static_cast<double>(c.width), tokens = static_cast<double>(c.tokens()),
             blocks = static_cast<double>(c.blocks), pairs = tokens * static_cast<double>(c.length + 1) / 2;
  const double forward =
      2 * tokens * d * (blocks * 12 * d + static_cast<double>(c.vocabulary)) + blocks * 4 * pairs * d;
  if (c.blocks == 0) return 0.0;
  return is_forward(work) ? forward : 3 * forward;
}

double measure_matmul_limit() {
  double best = 0.0;
  for (const char* name : {"xsimd", "onednn"}) {
    if (!backend_available(name)) continue;
    const BackendScope scope(name);
    const Tensor x = randn({1024, 768}), weight = randn({3072, 768});
    for (int i = 0; i < 10; ++i) {
      const auto start = std::chrono::steady_clock::now();
      linear(x, weight);
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
      best = std::max(best, 1e-9 * 2.0 * 1024 * 768 * 3072 / seconds.count());
    }
  }
  return best;
}

std::string architecture_of(Backend& backend) {
  const auto* xsimd = dynamic_cast<const xsimd_backend::Backend*>(&backend);
  return xsimd ? std::string(xsimd->architecture()) : "-";
}

std::string account_of(Backend& backend) {
  std::map<std::string_view, std::string> kernels;
  for (const KernelOrigin& origin : backend.kernel_origins())
    kernels[origin.origin] += fmt::format(" {}", origin.kernel);
  std::string text = fmt::format("backend {}, architecture {}\n", backend.name(), architecture_of(backend));
  for (const auto& [origin, names] : kernels)
    text += fmt::format("  {} {}:{}\n", origin == backend.name() ? "native" : "inherited from", origin, names);
  return text;
}

}  // namespace wengert::benchmarks
