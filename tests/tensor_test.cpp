// Shapes, tensors, memory and the choice of a backend. Runs on the backend that WENGERT_BACKEND names.

#include <doctest/doctest.h>

#include <algorithm>
#include <thread>

#include "wengert/backend.hpp"
#include "wengert/kernels.hpp"
#include "wengert/ops.hpp"
#include "wengert/random.hpp"
#include "wengert/tape.hpp"
#include "wengert/tensor.hpp"

namespace wg = wengert;
using wg::DType;
using wg::Shape;
using wg::Tensor;

TEST_CASE("a shape knows its extents, and refuses what cannot be one") {
  CHECK(Shape{}.numel() == 1);
  CHECK(Shape{}.str() == "[]");
  CHECK(Shape{2, 0, 3}.numel() == 0);
  CHECK(Shape{2, 3}.size(-1) == 3);
  CHECK((Shape{2, 3} + 4) == Shape{2, 3, 4});
  CHECK(Shape{2, 3, 4}.without(1) == Shape{2, 4});
  CHECK(Shape{2, 3, 4}.with(-1, 9) == Shape{2, 3, 9});
  CHECK(Shape{2, 3, 4}.product(1, 3) == 12);
  CHECK_THROWS_WITH_AS((Shape{2, 3}.size(2)), "axis 2 does not exist in shape [2, 3] of rank 2", wg::ShapeError);
  CHECK_THROWS_AS((Shape{-1}), wg::ShapeError);
  CHECK_THROWS_AS((Shape{1, 1, 1, 1, 1, 1, 1, 1, 1}), wg::ShapeError);
}

TEST_CASE("EMB-06: element counts are 64-bit and checked") {
  CHECK(Shape{40'000, 65'536}.numel() == 2'621'440'000);
  CHECK_THROWS_AS((Shape{std::int64_t{1} << 32, std::int64_t{1} << 32}), wg::ShapeError);
  CHECK_THROWS_AS((Shape{0, std::int64_t{1} << 62, 4}), wg::ShapeError);  // whatever the order of the extents
  CHECK_THROWS_AS(wg::empty({std::int64_t{1} << 62}), wg::Error);
}

TEST_CASE("shapes broadcast by NumPy's rule") {
  CHECK(wg::broadcast("add", {2, 3, 4}, {3, 1}) == Shape{2, 3, 4});
  CHECK(wg::broadcast("add", {}, {5}) == Shape{5});
  CHECK(wg::broadcast("add", {0, 4}, {1, 4}) == Shape{0, 4});
  CHECK_THROWS_WITH_AS(wg::broadcast("add", {2, 3}, {4}), "add: shapes [2, 3] and [4] do not broadcast: 3 against 4",
                       wg::ShapeError);
}

TEST_CASE("braces, vectors and fills become tensors") {
  const Tensor ids = wg::tensor<std::int64_t>({{15, 3, 9}, {4, 4, 0}});
  CHECK(ids.shape() == Shape{2, 3});
  CHECK(ids.dtype() == DType::int64);
  CHECK(ids.to_vector<std::int64_t>() == std::vector<std::int64_t>{15, 3, 9, 4, 4, 0});
  CHECK(wg::tensor<float>({1, 2, 3}).shape() == Shape{3});
  CHECK(wg::tensor<float>({{1}, {2}}).shape() == Shape{2, 1});
  CHECK(wg::tensor<double>({{{1, 2}}, {{3, 4}}}).shape() == Shape{2, 1, 2});
  CHECK_THROWS_AS(wg::tensor<float>({{1, 2}, {3}}), wg::ShapeError);
  CHECK_THROWS_AS(wg::tensor(std::vector<float>{1, 2, 3}, {2, 2}), wg::ShapeError);
  CHECK(wg::full({2}, 7, DType::int32).to_vector<std::int32_t>() == std::vector<std::int32_t>{7, 7});
  CHECK(wg::arange(3, 6).to_vector<std::int64_t>() == std::vector<std::int64_t>{3, 4, 5});
  CHECK(wg::arange(2, 4, DType::float32).to_vector<float>() == std::vector<float>{2, 3});
  CHECK(wg::zeros({0, 3}).to_vector<float>().empty());
}

TEST_CASE("values are read as any type, and converted as C++ converts") {
  const Tensor x = wg::tensor<float>({1.75F, -2.5F});
  CHECK(x.to_vector<std::int32_t>() == std::vector<std::int32_t>{1, -2});
  CHECK(x.to(DType::float64).to_vector<double>() == std::vector<double>{1.75, -2.5});
  CHECK(x.to(DType::float32).is(x));
  CHECK(wg::full({}, 2.5).item() == 2.5);
  CHECK(wg::full({1, 1}, 3).item<std::int64_t>() == 3);
  CHECK_THROWS_WITH_AS(x.item(), "item: the tensor has shape [2], not one element", wg::ShapeError);
}

TEST_CASE("an undefined tensor is an error, not a crash") {
  const Tensor none;
  CHECK_FALSE(none.defined());
  CHECK_THROWS_AS(none.shape(), wg::Error);
  CHECK_THROWS_AS(wg::add(none, none), wg::Error);
  CHECK_FALSE(none.requires_grad());
}

TEST_CASE("handles share, clones do not") {
  Tensor x = wg::tensor<float>({1, 2});
  Tensor handle = x, alias = x.detach(), copy = x.clone();
  x.fill_(5);
  CHECK(handle.to_vector<float>() == std::vector<float>{5, 5});
  CHECK(alias.to_vector<float>() == std::vector<float>{5, 5});
  CHECK(copy.to_vector<float>() == std::vector<float>{1, 2});
}

TEST_CASE("in-place operations change values and raise the version") {
  Tensor x = wg::tensor<float>({{1, 2}, {3, 4}});
  const auto version = x.storage().version();
  x.add_(wg::tensor<float>({10, 20}), 0.5).mul_(2);
  CHECK(x.to_vector<float>() == std::vector<float>{12, 24, 16, 28});
  CHECK(x.storage().version() >= version + 2);
  x.copy_(wg::tensor<std::int64_t>({{1, 2}, {3, 4}}));
  CHECK(x.to_vector<float>() == std::vector<float>{1, 2, 3, 4});
  CHECK_THROWS_AS(x.copy_(wg::zeros({4})), wg::ShapeError);
  CHECK_THROWS_AS(x.add_(wg::zeros({3})), wg::ShapeError);
  CHECK_THROWS_AS(x.add_(wg::zeros({2}, DType::float64)), wg::DTypeError);
  CHECK(x.to_vector<float>() == std::vector<float>{1, 2, 3, 4});
}

TEST_CASE("direct access needs the right type and memory that the host sees") {
  Tensor x = wg::tensor<float>({1, 2});
  CHECK_THROWS_AS(x.data<double>(), wg::DTypeError);
  if (x.storage().memory().host_visible()) {
    x.mutable_data<float>()[1] = 9;
    CHECK(x.data<float>()[1] == 9);
  } else {
    CHECK_THROWS_AS(x.data<float>(), wg::BackendError);
    CHECK_THROWS_AS(x.mutable_data<float>(), wg::BackendError);
  }
}

TEST_CASE("a tensor prints as in NumPy") {
  const std::string backend(wg::current_backend().name());
  CHECK(wg::tensor<std::int64_t>({{1, 20}, {3, 4}}).str() == "[[ 1, 20],\n [ 3,  4]]\nshape [2, 2], int64, " + backend);
  CHECK(wg::tensor<float>({1.5F, -2}).str() == "[ 1.5000, -2.0000]\nshape [2], float32, " + backend);
  CHECK(wg::full({}, 3).str() == "3.0000\nshape [], float32, " + backend);
  CHECK(wg::zeros({0, 2}).str() == "[]\nshape [0, 2], float32, " + backend);
  const std::string text = wg::arange(0, 2000).str();
  CHECK(text == "[   0,    1,    2, ..., 1997, 1998, 1999]\nshape [2000], int64, " + backend);
  CHECK(Tensor().str() == "undefined tensor");
}

TEST_CASE("BK-08: an unknown backend throws, lists the others, and changes nothing") {
  const std::string before(wg::current_backend().name());
  CHECK_THROWS_AS(wg::set_backend("tpu"), wg::BackendError);
  CHECK_THROWS_AS(wg::BackendScope("tpu"), wg::BackendError);
  CHECK_THROWS_WITH_AS(wg::backend("tpu"), doctest::Contains("backend 'tpu' is unknown; available: "),
                       wg::BackendError);
  CHECK_THROWS_WITH_AS(wg::backend("tpu"), doctest::Contains("reference"), wg::BackendError);
  CHECK(wg::current_backend().name() == before);
  std::string reason;
  CHECK_FALSE(wg::backend_available("tpu", &reason));
  CHECK_FALSE(reason.empty());
}

TEST_CASE("BK-08: a scope chooses for this thread alone") {
  const std::string process(wg::current_backend().name());
  const wg::BackendScope use("odd");
  CHECK(wg::zeros({1}).backend().name() == "odd");
  std::string other;
  std::thread([&] { other = wg::zeros({1}).backend().name(); }).join();
  CHECK(other == process);
}

TEST_CASE("BK-08: tensors live where they were made; mixed operands name both backends") {
  const Tensor here = wg::tensor<float>({1, 2});
  const Tensor odd = here.to("odd"), reference = here.to("reference");
  CHECK(odd.to_vector<float>() == here.to_vector<float>());
  CHECK_THROWS_WITH_AS(wg::add(reference, odd), doctest::Contains("reference"), wg::BackendError);
  CHECK_THROWS_WITH_AS(wg::add(reference, odd), doctest::Contains("odd"), wg::BackendError);
  Tensor target = reference.clone();
  CHECK_THROWS_AS(target.add_(odd), wg::BackendError);
  target.copy_(odd.clone().mul_(3));
  CHECK(target.to_vector<float>() == std::vector<float>{3, 6});
}

TEST_CASE("BK-08: a recorded graph stays on its backend, whatever is chosen later") {
  Tensor w = wg::tensor<float>({2, 3}).to("reference").set_requires_grad();
  wg::Tape tape;
  const Tensor loss = wg::sum(wg::square(w) * w);
  {
    const wg::BackendScope use("odd");
    w.move_to_(wg::backend("odd"));
    tape.backward(loss);
  }
  CHECK(w.backend().name() == "odd");
  CHECK(w.grad().backend().name() == "odd");
  CHECK(w.grad().to_vector<float>() == std::vector<float>{12, 27});
}

TEST_CASE("a tensor may change its backend in the middle of a graph") {
  const Tensor w = wg::tensor<double>({2, 3}).to("reference").set_requires_grad();
  wg::Tape tape;
  const Tensor there = wg::square(w).to("odd");
  tape.backward(wg::sum(there * there));
  CHECK(w.grad().backend().name() == "reference");
  CHECK(w.grad().to_vector<double>() == std::vector<double>{32, 108});
}

TEST_CASE("the number of threads is at least one, and checked") {
  const int before = wg::num_threads();
  CHECK(before >= 1);
  CHECK_THROWS_AS(wg::set_num_threads(0), wg::ValueError);
  wg::set_num_threads(3);
  CHECK(wg::num_threads() == 3);
  wg::set_num_threads(before);
}
