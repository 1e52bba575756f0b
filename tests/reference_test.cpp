// The reference backend as a base class, exact buffers, the bridge to xtensor, and the odd backend itself.

#include "wengert/backends/reference.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "../framework/core/tensor_impl.hpp"
#include "odd_backend.hpp"
#include "same_bits.hpp"
#include "wengert/ops.hpp"
#include "wengert/xtensor.hpp"

namespace wg = wengert;
using wg::DType;
using wg::Shape;
using wg::Tensor;

// --- A plug-in that overrides one kernel, as the header shows it ---

namespace {

int loud_calls = 0;

template <class T>
struct LoudKernels : wg::reference::Kernels<T> {
  static constexpr std::string_view origin = "loud";
  void add_rows(const wg::RowGrad& rows, Tensor& dense) override {
    ++loud_calls;
    wg::reference::Kernels<T>::add_rows(rows, dense);
  }
};

wg::Backend& make_loud() {
  static wg::reference::BackendWith<LoudKernels> backend("loud");
  return backend;
}

}  // namespace

TEST_CASE("a backend that overrides one kernel is complete, and says which one is its own") {
  if (const auto names = wg::backend_names(); std::find(names.begin(), names.end(), "loud") == names.end())
    wg::register_backend("loud", make_loud);
  const wg::BackendScope use("loud");
  int own = 0, reference = 0, composed = 0;
  for (const wg::KernelOrigin& line : wg::current_backend().kernel_origins()) {
    own += line.origin == "loud";
    reference += line.origin == "reference";
    composed += line.origin == "default";
    CHECK((line.origin == "loud") == (line.kernel == "add_rows"));
  }
  CHECK(own == 1);
  CHECK(reference == 21);
  CHECK(composed == 9);

  loud_calls = 0;
  const wg::RowGrad rows = wg::RowGrad::merge(wg::tensor<std::int64_t>({1, 1}), wg::ones({2, 3}), 2);
  CHECK(rows.dense().to_vector<float>() == std::vector<float>{0, 0, 0, 2, 2, 2});
  CHECK(loud_calls == 1);
  CHECK(wg::zeros({2}).backend().name() == "loud");
  CHECK(wg::zeros({2}, DType::float64).to_vector<double>() == std::vector<double>(2));
}

// --- EMB-10: buffers of exactly the right size ---

namespace {

// A tensor over memory with nothing behind its last element, so that a sanitizer sees every step too far; on a backend
// whose memory the host cannot see, an ordinary one. Starts full of NaN.
template <class T>
struct Exact {
  std::unique_ptr<void, void (*)(void*)> memory{nullptr, std::free};
  Tensor tensor;
  explicit Exact(const Shape& shape) {
    const std::size_t bytes = static_cast<std::size_t>(shape.numel()) * sizeof(T);
    wg::Backend& backend = wg::current_backend();
    if (backend.memory().host_visible()) {
      void* data = nullptr;
      REQUIRE(posix_memalign(&data, 64, bytes) == 0);
      memory.reset(data);
      tensor = wg::detail::TensorAccess::make(wg::Storage::borrow(backend.memory(), data, bytes), shape,
                                              wg::dtype_of<T>, backend);
    } else {
      tensor = wg::empty(shape, wg::dtype_of<T>, backend);
    }
    if (wg::is_floating(wg::dtype_of<T>)) tensor.fill_(std::numeric_limits<double>::quiet_NaN());
  }
  Exact(const std::vector<T>& values, const Shape& shape) : Exact(shape) {
    tensor.storage().memory().upload(tensor.storage().write(), values.data(), values.size() * sizeof(T));
  }
};

}  // namespace

TEST_CASE_TEMPLATE("EMB-10: widths that no vector divides, with nothing behind the last row", T, float, double) {
  wg::Kernels& k = wg::current_backend().kernels(wg::dtype_of<T>);
  for (const std::int64_t d : {1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 65, 67}) {
    CAPTURE(d);
    const auto values = wg::testing::random_values<T>(5 * d, 40);
    const std::vector<std::int64_t> id_values{4, 0, 4};
    const Exact<T> table(values, {5, d}), position(std::vector<T>(static_cast<std::size_t>(3 * d), T(1)), {3, d});
    const Exact<std::int64_t> ids(id_values, {3}), matrix(id_values, {1, 3});
    std::vector<T> rows(static_cast<std::size_t>(3 * d)), sums(rows), dropped(rows);
    wg::bits::gather_rows(values.data(), id_values.data(), 3, d, rows.data());
    for (std::size_t i = 0; i < rows.size(); ++i) sums[i] = rows[i] + T(1);

    Exact<T> out({3, d});
    k.gather_rows(table.tensor, ids.tensor, out.tensor);
    CHECK_SAME_BITS(out.tensor.template to_vector<T>(), rows);
    Exact<T> sum({3, d});
    k.binary(wg::Binary::add, out.tensor, position.tensor, sum.tensor);
    CHECK_SAME_BITS(sum.tensor.template to_vector<T>(), sums);

    const wg::Dropout dropout{0.37, {.seed = 3, .stream = 0, .counter = 0}};
    const std::int64_t places[] = {0, 1, 2};
    wg::bits::embed_dropout(values.data(), std::vector<T>(static_cast<std::size_t>(3 * d), T(1)).data(),
                            id_values.data(), places, 3, d, {.p = 0.37, .seed = 3, .stream = 0, .base = 0},
                            dropped.data());
    Exact<T> embedded({1, 3, d});
    wg::Saved saved;
    k.embed_dropout(table.tensor, position.tensor, matrix.tensor, {}, dropout, embedded.tensor, saved);
    CHECK_SAME_BITS(embedded.tensor.template to_vector<T>(), dropped);

    const wg::RowGrad merged = k.merge_rows(ids.tensor, out.tensor, 5, {});
    CHECK(merged.ids.to_vector<std::int64_t>() == std::vector<std::int64_t>{0, 4});
    Exact<T> param(values, {5, d}), m(std::vector<T>(values.size()), {5, d}), v(std::vector<T>(values.size()), {5, d});
    k.sgd_step({.lr = 0.1, .momentum = 0.9, .first = true}, merged, param.tensor, m.tensor);
    k.adam_step({.lr = 0.1}, table.tensor, param.tensor, m.tensor, v.tensor);
    k.add_rows(merged, param.tensor);
    Exact<T> column({d}), product({3, 3});
    k.reduce(wg::Reduce::sum, {1, 5, d}, param.tensor, column.tensor);
    wg::Matmul shape;
    shape.m = shape.n = 3, shape.k = d, shape.trans_b = true;
    k.matmul(shape, out.tensor, sum.tensor, product.tensor);
    for (const Tensor& t : {param.tensor, m.tensor, v.tensor, column.tensor, product.tensor}) {
      const auto got = t.template to_vector<T>();
      CHECK(std::none_of(got.begin(), got.end(), [](T x) { return std::isnan(x); }));
    }
  }
}

// --- xtensor ---

TEST_CASE("tensors travel to xtensor and back") {
  const Tensor t = wg::tensor<float>({{1, 2, 3}, {4, 5, 6}});
  const xt::xarray<double> copy = wg::to_xtensor<double>(t);
  CHECK(copy.shape(1) == 3);
  CHECK(copy(1, 2) == 6.0);
  const Tensor back = wg::from_xtensor(copy + 1.0);
  CHECK(back.shape() == Shape{2, 3});
  CHECK(back.dtype() == DType::float64);
  CHECK(back.to_vector<double>() == std::vector<double>{2, 3, 4, 5, 6, 7});
  CHECK(&back.backend() == &wg::current_backend());
  const Tensor turned = wg::from_xtensor(xt::transpose(copy));  // an expression, in the order of its own axes
  CHECK(turned.shape() == Shape{3, 2});
  CHECK(turned.to_vector<double>() == std::vector<double>{1, 4, 2, 5, 3, 6});
  CHECK(wg::from_xtensor(xt::xarray<std::int64_t>{1, 2}).dtype() == DType::int64);

  if (wg::current_backend().memory().host_visible()) {
    const auto seen = wg::view<float>(t);
    CHECK(seen(1, 0) == 4.0f);
    CHECK(static_cast<const void*>(seen.data()) == t.storage().read());
    CHECK_THROWS_AS(wg::view<double>(t), wg::DTypeError);
  } else {
    CHECK_THROWS_AS(wg::view<float>(t), wg::BackendError);
  }
  const Tensor scalar = wg::full({}, 3.0);
  CHECK(wg::to_xtensor<float>(scalar)() == 3.0f);
  CHECK(wg::to_xtensor<float>(wg::zeros({0, 4})).size() == 0);
}

// --- The odd backend ---

TEST_CASE("the odd backend hides its memory and counts every transfer") {
  const wg::BackendScope use("odd");
  const wg::odd::Counts before = wg::odd::counts();
  const Tensor t = wg::tensor<float>({1, 2, 3});
  CHECK(wg::odd::counts().uploads == before.uploads + 1);
  CHECK_THROWS_AS(t.data<float>(), wg::BackendError);
  const void* address = t.storage().read();
  CHECK(wg::odd::real(address) != address);
  CHECK(static_cast<const float*>(wg::odd::real(address))[1] == 2.0f);
  CHECK(t.to_vector<float>()[2] == 3.0f);
  CHECK(wg::odd::counts().downloads == before.downloads + 1);
  const Tensor other = t.clone();
  CHECK(wg::odd::counts().copies == before.copies + 1);
  CHECK_THROWS_AS(wg::odd::real(&other), wg::Error);

  const std::uint64_t version = t.storage().version();
  const wg::odd::Counts settled = wg::odd::counts();
  Tensor sum = wg::empty({3});
  sum.kernels().binary(wg::Binary::add, t, other, sum);
  CHECK(sum.storage().version() > 0);
  CHECK(t.storage().version() == version);
  CHECK(wg::odd::counts() == settled);
  CHECK(sum.to_vector<float>() == std::vector<float>{2, 4, 6});
}

TEST_CASE("fresh memory of the odd backend is full of NaN") {
  wg::odd::memory().release_cached();
  const auto values = wg::empty({100}, DType::float32, wg::backend("odd")).to_vector<float>();
  CHECK(std::all_of(values.begin(), values.end(), [](float x) { return std::isnan(x); }));
}
