#include "ours.hpp"

#include <fmt/format.h>

#include <chrono>
#include <map>
#include <set>

#include "wengert/backends/xsimd.hpp"

namespace wengert::benchmarks {

OurLayer::OurLayer(const Configuration& c)
    : configuration_(c),
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
    case Work::sgd:
    case Work::adamw:
    case Work::lazy_adam: {
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

double OurLayer::step(const Tensor& ids) {
  const auto start = std::chrono::steady_clock::now();
  run(ids);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Tensor OurLayer::ids(IdStream& stream) const {
  return tensor(stream.batch(configuration_.tokens()), {configuration_.batch, configuration_.length});
}

LeastTraffic least_traffic(const Configuration& c, Work work, double rows) {
  const auto row = 4.0 * static_cast<double>(c.width), tokens = static_cast<double>(c.tokens()),
             length = static_cast<double>(c.length);
  LeastTraffic least;
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
