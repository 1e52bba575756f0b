/// One half of interop.sh, which runs these between two runs of Python. Alone they are skipped.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "gpt2_model.hpp"
#include "wengert/gradient.hpp"
#include "wengert/io.hpp"
#include "wengert/random.hpp"

using namespace wengert;

namespace {

using Values = std::vector<double>;

std::string file(const char* name) {
  const char* folder = std::getenv("WENGERT_INTEROP");
  REQUIRE(folder != nullptr);
  return std::string(folder) + "/" + name;
}
const Values quarters{0, 0.25, 0.5, 0.75, 1, 1.25};

}  // namespace

TEST_CASE("interop: Wengert writes" * doctest::skip()) {
  const Tensor grid = tensor(quarters, {2, 3}).to(DType::float32);
  io::save_safetensors({{"float", grid},
                        {"tied", grid},
                        {"double", tensor<double>({0.1, -1e300})},
                        {"ids", tensor<std::int64_t>({std::int64_t{1} << 62, -1})},
                        {"int", tensor<std::int32_t>({INT32_MIN})},
                        {"nothing", zeros({0, 4})},
                        {"n\xC3\xA4m\"e", ones({1})},
                        {"scalar", full({}, 2.5)}},
                       file("ours.safetensors"), {.metadata = {{"note", "zwei\nZeilen"}}});
  io::save_safetensors({{"float", grid}}, file("half.safetensors"), {.dtype = io::Half::float16});
  io::save_npy(tensor(quarters, {2, 3}), file("ours.npy"));
  Tensor w = ones({2}).set_requires_grad();
  optim::SGD optimizer(NamedTensors{{"w", w}}, {.lr = 0.1, .momentum = 0.9});
  for (int step = 0; step < 3; ++step) {
    w.set_gradient(Gradient(ones({2})));
    optimizer.step();
  }
  io::save_checkpoint({.model = {{"w", w}}, .optimizer = optimizer.state_dict(), .step = 3}, file("run.ckpt"));
}

TEST_CASE("interop: Wengert reads" * doctest::skip()) {
  const io::SafetensorsFile theirs(file("theirs.safetensors"));
  CHECK(io::find(theirs.metadata(), "note") == "zwei\nZeilen");
  CHECK(theirs.read("float").to_vector<double>() == quarters);
  CHECK(theirs.read("float").shape() == Shape{2, 3});
  CHECK(theirs.read("half").to_vector<double>() == Values{0, 1, 2, 3, 4, 5});
  CHECK(theirs.read("ids").to_vector<std::int64_t>() == std::vector<std::int64_t>{std::int64_t{1} << 62, -1});
  const Tensor array = io::load_npy(file("theirs.npy"));
  CHECK(array.to_vector<double>() == Values{0, 1, 2, 3, 4, 5});
  CHECK(array.dtype() == DType::float64);
}

namespace {

constexpr testing::Gpt2::Options gpt2{.vocab_size = 53, .max_seq_len = 19, .embed_dim = 24, .num_heads = 3, .depth = 3};

/// gpt2_names the other way round: it joins nothing, so that its two names may change places.
NamedTensors to_transformers(const NamedTensors& ours) {
  std::vector<io::Rename> back;
  for (const io::Rename& rule : io::gpt2_names)
    if (!rule.ours.empty()) back.push_back({rule.ours, rule.theirs, rule.transpose});
  NamedTensors theirs = io::rename(ours, back);
  for (NamedTensor& entry : theirs) entry.name.insert(0, "transformer.");
  return theirs;
}

}  // namespace

TEST_CASE("interop: GPT-2 from transformers and back" * doctest::skip()) {
  for (const std::string& name : backend_names()) {
    if (!backend_available(name)) continue;
    CAPTURE(name);
    const BackendScope use(name);
    const NamedTensors wanted = io::load_safetensors(file("gpt2_theirs_out.safetensors"));
    testing::Gpt2 model(gpt2);
    model.load_state_dict(
        io::rename(io::load_safetensors(file("gpt2_theirs/model.safetensors")), io::gpt2_names, "transformer."));
    const Tensor logits = model.logits(find(wanted, "ids"));
    REQUIRE(logits.shape() == find(wanted, "logits").shape());
    const Values a = logits.to_vector<double>(), b = find(wanted, "logits").to_vector<double>();
    double largest = 0.0;
    for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
    CHECK(largest < 1e-4);
    MESSAGE("GPT-2 of transformers gives the same logits on " << name << " within " << largest);
  }
  manual_seed(7);
  const testing::Gpt2 model(gpt2);
  for (Tensor& parameter : model.parameters()) normal_(parameter, 0.0, 0.3);
  const Tensor ids = randint(0, gpt2.vocab_size, {2, 17});
  io::save_safetensors(to_transformers(model.state_dict()), file("gpt2_ours/model.safetensors"),
                       {.metadata = {{"format", "pt"}}});
  io::save_safetensors({{"ids", ids}, {"logits", model.logits(ids)}}, file("gpt2_ours_out.safetensors"));
}
