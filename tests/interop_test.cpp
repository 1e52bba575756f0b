/// One half of interop.sh, which runs these between two runs of Python. Alone they are skipped.

#include <doctest/doctest.h>

#include <cstdlib>

#include "wengert/gradient.hpp"
#include "wengert/io.hpp"

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
