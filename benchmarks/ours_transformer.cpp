#include "ours.hpp"

namespace wengert::benchmarks {

namespace {

layers::TransformerBlock::Options block_options(const Configuration& c, double dropout) {
  return {.embed_dim = c.width,
          .num_heads = c.heads,
          .feedforward_dim = 4 * c.width,
          .dropout = dropout,
          .activation = layers::Activation::gelu_tanh,
          .norm_first = true};
}

/// One block in the middle of a network: its input has a gradient, too.
class OurBlock : public OurModel {
 public:
  explicit OurBlock(const Configuration& c)
      : OurModel(c),
        block_(block_options(c, dropout_p)),
        input_(randn({c.batch, c.length, c.width})),
        upstream_(randn({c.batch, c.length, c.width})) {
    input_.set_requires_grad(true);
  }
  void prepare(Work work) override { work_ = work; }

 private:
  void run(const Tensor& /*ids*/) override {
    {
      Tape tape;
      const Tensor out = block_(input_, {.causal = true});
      if (is_forward(work_)) return;
      tape.backward(out, {.seed = upstream_});
    }
    block_.zero_grad();
    input_.zero_grad();
  }

  layers::TransformerBlock block_;
  Tensor input_, upstream_;
  Work work_ = Work::block_forward;
};

struct Gpt : layers::Module {
  layers::TransformerEmbedding embed;
  layers::ModuleList<layers::TransformerBlock> blocks;
  layers::LayerNorm norm;
  Tensor head;  // (vocabulary, width)

  Gpt(const Configuration& c, bool tied)
      : embed({.vocab_size = c.vocabulary,
               .max_seq_len = c.limit,
               .embed_dim = c.width,
               .dropout = 0.0,
               .init_std = 0.02}),
        norm({.normalized_shape = {c.width}}),
        head(tied ? embed.token_embed.weight : randn({c.vocabulary, c.width}) * 0.02) {
    for (std::int64_t i = 0; i < c.blocks; ++i) blocks.emplace_back(block_options(c, 0.0));
    register_module("embed", embed);
    register_module("blocks", blocks);
    register_module("norm", norm);
    register_parameter("head", head);
  }
  Tensor loss(const Tensor& ids, const Tensor& next) const {
    Tensor x = embed(ids);
    for (std::size_t i = 0; i < blocks.size(); ++i) x = blocks[i](x, {.causal = true});
    return linear_cross_entropy(norm(x), head, next);
  }
};

/// A training step of a whole model.
class OurTransformer : public OurModel {
 public:
  explicit OurTransformer(const Configuration& c) : OurModel(c) {}

  void prepare(Work work) override {
    optimizer_.reset();
    model_ = std::make_unique<Gpt>(configuration_, work == Work::transformer_step);
    const optim::AdamWOptions options{.lr = 1e-4};
    if (work != Work::transformer_step_lazy) {
      optimizer_ = std::make_unique<optim::AdamW>(model_->named_parameters(), options);
      return;
    }
    const auto is_table = [](std::string_view name) { return name == "embed.token_embed.weight"; };
    const NamedTensors parameters = model_->named_parameters();
    optimizer_ = std::make_unique<optim::AdamW>(select(parameters, std::not_fn(is_table)), options);
    optimizer_->add_group({.parameters = select(parameters, is_table), .rows = optim::RowUpdate::lazy});
  }

 private:
  void run(const Tensor& ids) override {
    {
      Tape tape;
      tape.backward(model_->loss(slice(ids, 1, 0, -1), slice(ids, 1, 1)));
    }
    optimizer_->step();
    optimizer_->zero_grad();
  }

  std::unique_ptr<Gpt> model_;
};

}  // namespace

std::unique_ptr<OurModel> make_our_transformer(const Configuration& c) {
  if (c.vocabulary == 0) return std::make_unique<OurBlock>(c);
  return std::make_unique<OurTransformer>(c);
}

}  // namespace wengert::benchmarks
