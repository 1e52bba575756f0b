// The work of configurations.hpp done by libtorch, as an opponent of `compare`, which starts this program and tells it
// what to do, a line at a time:
//
//   libtorch_peer CONFIG IDS THREADS plain|fast-mask     says who it is
//   prepare WORK dense|sparse                            "ok", or why not
//   run N                                                milliseconds of each of N steps
//
// fast-mask draws dropout's mask at about 1 ns an element, as MKL would; this libtorch draws a serial Mersenne twister.

#include <torch/torch.h>
#include <torch/version.h>

#include <chrono>
#include <cstdio>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>

#include "configurations.hpp"

namespace {

using namespace wengert::benchmarks;
namespace F = torch::nn::functional;

/// 0 or 1 a float, from 32 random bits each (xoshiro256+ of Blackman and Vigna, four at a time).
class FastMask {
 public:
  void fill(float* out, std::int64_t n, double keep) {
    const auto limit = static_cast<std::uint32_t>(keep * 4294967295.0);
    for (std::int64_t i = 0; i + 8 <= n; i += 8) {
      for (int lane = 0; lane < 4; ++lane) {
        const std::uint64_t bits = a_[lane] + d_[lane], t = b_[lane] << 17;
        c_[lane] ^= a_[lane], d_[lane] ^= b_[lane], b_[lane] ^= c_[lane], a_[lane] ^= d_[lane], c_[lane] ^= t;
        d_[lane] = d_[lane] << 45 | d_[lane] >> 19;
        out[i + 2 * lane] = static_cast<std::uint32_t>(bits) < limit ? 1.0F : 0.0F;
        out[i + 2 * lane + 1] = static_cast<std::uint32_t>(bits >> 32) < limit ? 1.0F : 0.0F;
      }
    }
  }

 private:
  std::uint64_t a_[4] = {1, 2, 3, 4}, b_[4] = {5, 6, 7, 8}, c_[4] = {9, 10, 11, 12}, d_[4] = {13, 14, 15, 16};
};

/// torch.optim.SparseAdam, which the C++ library does not have: the same operations.
class SparseAdam {
 public:
  explicit SparseAdam(std::vector<torch::Tensor> parameters) : parameters_(std::move(parameters)) {
    for (const torch::Tensor& p : parameters_) {
      first_.push_back(torch::zeros_like(p));
      second_.push_back(torch::zeros_like(p));
    }
  }
  void step() {
    torch::NoGradGuard pause;
    ++steps_;
    const double beta1 = 0.9, beta2 = 0.999;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const torch::Tensor grad = parameters_[i].grad().coalesce(), indices = grad._indices(), values = grad._values();
      const auto sparse = [&](const torch::Tensor& v) { return torch::sparse_coo_tensor(indices, v, grad.sizes()); };
      const torch::Tensor old_first = first_[i].sparse_mask(grad)._values(),
                          first_change = values.sub(old_first).mul_(1 - beta1);
      first_[i].add_(sparse(first_change));
      const torch::Tensor old_second = second_[i].sparse_mask(grad)._values(),
                          second_change = values.pow(2).sub_(old_second).mul_(1 - beta2);
      second_[i].add_(sparse(second_change));
      const torch::Tensor numerator = first_change.add_(old_first),
                          root = second_change.add_(old_second).sqrt_().add_(1e-8);
      const double size = 1e-4 * std::sqrt(1 - std::pow(beta2, steps_)) / (1 - std::pow(beta1, steps_));
      parameters_[i].add_(sparse(numerator.div_(root).mul_(-size)));
    }
  }

 private:
  std::vector<torch::Tensor> parameters_, first_, second_;
  int steps_ = 0;
};

class Peer {
 public:
  Peer(const Configuration& c, const std::string& kind, bool fast_mask)
      : c_(c), stream_(c, kind, 1), fast_mask_(fast_mask) {
    tokens_ = torch::randn({c.vocabulary, c.width}).mul_(0.02).requires_grad_();
    positions_ = torch::randn({c.limit, c.width}).mul_(0.02).requires_grad_();
    places_ = torch::arange(c.length);
    linear_ = torch::nn::Linear(c.width, c.width);
    upstream_ = torch::randn({c.batch, c.length, c.width});
  }

  std::string prepare(Work work, bool sparse) {
    work_ = work, sparse_ = sparse;
    optimizer_.reset();
    lazy_.reset();
    const std::vector<torch::Tensor> tables = {tokens_, positions_};
    if (work == Work::sgd) optimizer_ = std::make_unique<torch::optim::SGD>(tables, torch::optim::SGDOptions(1e-3));
    if (work == Work::adamw)
      optimizer_ = std::make_unique<torch::optim::AdamW>(tables, torch::optim::AdamWOptions(1e-4));
    if (work == Work::adamw && sparse) return "AdamW has no sparse gradients";
    if (work == Work::lazy_adam) {
      if (!sparse) return "SparseAdam has no dense gradients";
      lazy_ = std::make_unique<SparseAdam>(tables);
    }
    return "ok";
  }

  double step() {
    const std::vector<std::int64_t> values = stream_.batch(c_.tokens());
    const torch::Tensor ids = torch::tensor(values).view({c_.batch, c_.length});
    const auto start = std::chrono::steady_clock::now();
    run(ids);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

 private:
  torch::Tensor forward(const torch::Tensor& ids) {
    const torch::Tensor sum =
        torch::embedding(tokens_, ids, -1, false, sparse_) + torch::embedding(positions_, places_, -1, false, sparse_);
    const bool training = work_ != Work::eval_forward;
    if (!training || !fast_mask_) return torch::dropout(sum, dropout_p, training);
    torch::Tensor noise = torch::empty_like(sum, torch::TensorOptions().requires_grad(false));
    mask_.fill(noise.data_ptr<float>(), noise.numel(), 1 - dropout_p);
    noise.div_(1 - dropout_p);
    return sum * noise;
  }

  void run(const torch::Tensor& ids) {
    if (work_ == Work::eval_forward) {
      torch::NoGradGuard pause;
      forward(ids);
      return;
    }
    torch::Tensor out = forward(ids);
    if (work_ == Work::train_forward) return;
    if (work_ == Work::train_forward_linear) {
      out = linear_(out);
      return;
    }
    out.backward(upstream_);
    if (optimizer_) optimizer_->step();
    if (lazy_) lazy_->step();
    tokens_.mutable_grad().reset();
    positions_.mutable_grad().reset();
  }

  Configuration c_;
  IdStream stream_;
  bool fast_mask_, sparse_ = false;
  Work work_ = Work::eval_forward;
  FastMask mask_;
  torch::Tensor tokens_, positions_, places_, upstream_;
  torch::nn::Linear linear_{nullptr};
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  std::unique_ptr<SparseAdam> lazy_;
};

int serve(const std::vector<std::string>& arguments) {
  torch::set_num_threads(std::stoi(arguments.at(3)));
  Peer peer(configuration(arguments.at(1)), arguments.at(2), arguments.at(4) == "fast-mask");
  std::cout << "libtorch " << TORCH_VERSION << std::endl;
  for (std::string line, word; std::getline(std::cin, line);) {
    std::istringstream words(line);
    words >> word;
    if (word == "prepare") {
      std::string name, gradient;
      words >> name >> gradient;
      std::cout << peer.prepare(work(name), gradient == "sparse") << std::endl;
    } else {
      int count = 0;
      words >> count;
      std::ostringstream answer;
      for (int i = 0; i < count; ++i) answer << 1e3 * peer.step() << ' ';
      std::cout << answer.str() << std::endl;
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return serve({argv, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "libtorch_peer: %s\n", error.what());
    return 1;
  }
}
