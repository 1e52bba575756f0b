// The kernels of the embedding stack on the current backend, bit for bit against wengert/bits.hpp.

#include <doctest/doctest.h>

#include <array>

#include "kernel_tools.hpp"
#include "same_bits.hpp"
#include "wengert/kernels.hpp"
#include "wengert/ops.hpp"

namespace wg = wengert;
namespace bits = wengert::bits;
using wg::Shape;
using wg::Tensor;
using wg::testing::random_ids;
using wg::testing::random_values;
using wg::testing::special_values;

namespace {

using Ids = std::vector<std::int64_t>;

using wengert::testing::kernels;
using wengert::testing::unwritten;
using wengert::testing::upload;
std::size_t size(std::int64_t count) { return static_cast<std::size_t>(count); }

// What merge_rows must give.
template <class T>
struct Merged {
  Ids ids;
  std::vector<T> rows;
  Merged(const Ids& places, const std::vector<T>& terms, std::int64_t d, const std::int64_t* skip = nullptr)
      : ids(places.size()), rows(terms.size()) {
    const auto m = static_cast<std::int64_t>(places.size());
    const std::int64_t n = bits::merge_rows(places.data(), terms.data(), m, d, skip, ids.data(), rows.data());
    ids.resize(size(n));
    rows.resize(size(n * d));
  }
};

template <class T>
void check_merged(const wg::RowGrad& got, const Merged<T>& wanted, std::int64_t num_rows, std::int64_t d) {
  CHECK(got.num_rows == num_rows);
  CHECK(got.ids.shape() == Shape{static_cast<std::int64_t>(wanted.ids.size())});
  CHECK(got.rows.shape() == Shape{static_cast<std::int64_t>(wanted.ids.size()), d});
  CHECK(got.ids.to_vector<std::int64_t>() == wanted.ids);
  CHECK_SAME_BITS(got.rows.to_vector<T>(), wanted.rows);
}

const std::array<std::int64_t, 9> lengths{0, 1, 3, 7, 17, 127, 128, 129, 1000};

}  // namespace

TEST_CASE_TEMPLATE("gather_rows copies rows of every width", T, float, double) {
  for (std::int64_t d = 1; d <= 67; ++d) {
    const auto table = special_values<T>(5 * d, 1);
    const Ids ids{4, 0, 4, 2, 1, 3, 4};
    std::vector<T> wanted(ids.size() * size(d));
    bits::gather_rows(table.data(), ids.data(), 7, d, wanted.data());
    Tensor out = unwritten<T>({7, d});
    kernels<T>().gather_rows(upload(table, {5, d}), upload(ids, {7}), out);
    CHECK_SAME_BITS(out.template to_vector<T>(), wanted);
  }
}

TEST_CASE_TEMPLATE("add broadcasts over the batch", T, float, double) {
  for (std::int64_t m = 1; m <= 67; ++m)
    for (const std::int64_t batch : {0, 1, 2, 5}) {
      const auto a = special_values<T>(batch * m, 2), b = special_values<T>(m, 3);
      std::vector<T> wanted(a.size());
      bits::add_broadcast(a.data(), b.data(), batch, m, wanted.data());
      Tensor out = unwritten<T>({batch, m});
      kernels<T>().binary(wg::Binary::add, upload(a, {batch, m}), upload(b, {m}), out);
      CHECK_SAME_BITS(out.template to_vector<T>(), wanted);
    }
}

TEST_CASE_TEMPLATE("sums have the fixed tree's bits along every axis", T, float, double) {
  for (const std::int64_t n : {0, 1, 2, 31, 32, 33, 64, 65, 97, 255, 256, 257, 300, 1023, 2081})
    for (const std::int64_t inner : {1, 3, 67, 130}) {
      const auto x = random_values<T>(2 * n * inner, 4);
      std::vector<T> wanted(size(2 * inner));
      bits::sum_batch(x.data(), n, inner, wanted.data());
      bits::sum_batch(x.data() + n * inner, n, inner, wanted.data() + inner);
      Tensor out = unwritten<T>({2, inner});
      kernels<T>().reduce(wg::Reduce::sum, {2, n, inner}, upload(x, {2, n, inner}), out);
      CHECK_SAME_BITS(out.template to_vector<T>(), wanted);
    }
  for (const std::int64_t inner : {1, 5}) {  // a -0 alone stays one; NaN and infinities go the same way
    const auto x = special_values<T>(300 * inner, 5);
    std::vector<T> wanted(size(inner));
    bits::sum_batch(x.data(), 300, inner, wanted.data());
    Tensor out = unwritten<T>({inner});
    kernels<T>().reduce(wg::Reduce::sum, {1, 300, inner}, upload(x, {300, inner}), out);
    CHECK_SAME_BITS(out.template to_vector<T>(), wanted);
  }
}

TEST_CASE_TEMPLATE("EMB-05: 200,000 repeats of one id", T, float, double) {
  const Ids ids(200'000, 3);
  const wg::RowGrad merged =
      wg::RowGrad::merge(upload(ids, {200'000}), wg::full({200'000, 1}, 0.1, wg::dtype_of<T>), 8);
  CHECK(merged.count() == 1);
  const double exact = 200'000 * static_cast<double>(T(0.1));
  CHECK(std::abs(merged.rows.template item<double>() / exact - 1.0) < 1e-6);
  check_merged(merged, Merged<T>(ids, std::vector<T>(200'000, T(0.1)), 1), 8, 1);
}

TEST_CASE_TEMPLATE("merge_rows adds up equal ids in the order of their place", T, float, double) {
  const std::int64_t skip = 2;
  for (std::int64_t d = 1; d <= 67; ++d) {  // few rows, many repeats: runs of more than one block
    const Ids ids = random_ids(150, 3, 6);
    const auto rows = special_values<T>(150 * d, 7);
    check_merged(kernels<T>().merge_rows(upload(ids, {150}), upload(rows, {150, d}), 3, {}), Merged<T>(ids, rows, d), 3,
                 d);
    check_merged(kernels<T>().merge_rows(upload(ids, {150}), upload(rows, {150, d}), 3, skip),
                 Merged<T>(ids, rows, d, &skip), 3, d);
  }
  for (const std::int64_t m : lengths)  // many rows, few repeats
    for (const std::int64_t table :
         {std::int64_t{5}, std::int64_t{700}, std::int64_t{100'000}, std::int64_t{1} << 40}) {
      const Ids ids = random_ids(m, table, 8);
      const auto rows = random_values<T>(m * 5, 9);
      check_merged(kernels<T>().merge_rows(upload(ids, {m}), upload(rows, {m, 5}), table, {}), Merged<T>(ids, rows, 5),
                   table, 5);
    }
  const Ids only{2, 2, 2};  // nothing is left
  check_merged(kernels<T>().merge_rows(upload(only, {3}), wg::ones({3, 4}, wg::dtype_of<T>), 3, skip),
               Merged<T>({}, {}, 4), 3, 4);
  const Ids sorted{0, 1, 1, 5}, narrow{3, 1, 3};
  const auto rows = special_values<T>(4, 10);
  check_merged(kernels<T>().merge_rows(upload(sorted, {4}), upload(rows, {4, 1}), 6, {}), Merged<T>(sorted, rows, 1), 6,
               1);
  const wg::RowGrad none = kernels<T>().merge_rows(upload(narrow, {3}), wg::empty({3, 0}, wg::dtype_of<T>), 6, {});
  CHECK(none.ids.to_vector<std::int64_t>() == Ids{1, 3});
  CHECK(none.rows.shape() == Shape{2, 0});
}

TEST_CASE_TEMPLATE("add_rows adds to the rows that are present", T, float, double) {
  for (std::int64_t d = 0; d <= 67; ++d) {
    const Ids ids{1, 2, 5};
    const auto rows = special_values<T>(3 * d, 11);
    auto wanted = special_values<T>(6 * d, 12);
    Tensor dense = upload(wanted, {6, d});
    bits::add_rows(ids.data(), rows.data(), 3, d, wanted.data());
    kernels<T>().add_rows({upload(ids, {3}), upload(rows, {3, d}), 6}, dense);
    CHECK_SAME_BITS(dense.template to_vector<T>(), wanted);
  }
}

TEST_CASE_TEMPLATE("keep_mask draws the bits of docs/bits.md", T, float, double) {
  const wg::RandomState state{
      .seed = 0xfeedface12345678, .stream = 0x1122334455667788, .counter = ~std::uint64_t{0} - 20};
  for (const double p : {0.1, 0.37, 0.5, 0.9, 1.0})
    for (const std::int64_t count : {0, 1, 8, 15, 127, 128, 129, 511, 512, 513, 5000}) {
      std::vector<std::uint8_t> wanted(size(4 * bits::mask_words(count)));
      bits::keep_mask({.p = p, .seed = state.seed, .stream = state.stream, .base = state.counter}, count,
                      wanted.data());
      Tensor mask = wg::empty({bits::mask_words(count)}, wg::DType::int32);
      kernels<T>().keep_mask({p, state}, count, mask);
      const auto words = mask.template to_vector<std::int32_t>();
      const auto* bytes = reinterpret_cast<const std::uint8_t*>(words.data());
      bool same = true;
      for (std::int64_t e = 0; e < count; ++e) same = same && bits::kept(bytes, e) == bits::kept(wanted.data(), e);
      CHECK(same);
    }
}

TEST_CASE("an element whose 16 bits equal the threshold is kept") {
  const wg::RandomState state{.seed = 11, .stream = 0, .counter = 0};
  for (std::int64_t e = 0; e < 200; ++e) {
    const std::uint32_t drawn = bits::Drawing{.p = 0.5, .seed = 11, .stream = 0, .base = 0}.bits(e);
    if (drawn == 0 || drawn == 65535) continue;
    for (const std::uint32_t threshold : {drawn, drawn + 1}) {
      Tensor mask = wg::empty({bits::mask_words(200)}, wg::DType::int32);
      kernels<float>().keep_mask({threshold / 65536.0, state}, 200, mask);
      const auto words = mask.to_vector<std::int32_t>();
      CHECK(bits::kept(reinterpret_cast<const std::uint8_t*>(words.data()), e) == (threshold == drawn));
    }
  }
}

TEST_CASE_TEMPLATE("DRP-03: apply_mask selects, it does not multiply", T, float, double) {
  for (const std::int64_t count : lengths)
    for (const double p : {0.1, 0.9, 1.0}) {
      std::vector<std::int32_t> words(size(bits::mask_words(count)));
      auto* mask = reinterpret_cast<std::uint8_t*>(words.data());
      bits::keep_mask({.p = p, .seed = 5, .stream = 0, .base = 0}, count, mask);
      const auto x = special_values<T>(count, 13);
      std::vector<T> wanted(x.size());
      bits::apply_mask(x.data(), mask, bits::keep_scale(p), count, wanted.data());
      for (std::int64_t e = 0; e < count; ++e)
        if (!bits::kept(mask, e)) CHECK(wg::testing::same_bits(wanted[size(e)], T(0)));
      Tensor out = unwritten<T>({count}), in_place = upload(x, {count});
      const Tensor uploaded = upload(words, {bits::mask_words(count)});
      kernels<T>().apply_mask(upload(x, {count}), uploaded, bits::keep_scale(p), out);
      CHECK_SAME_BITS(out.template to_vector<T>(), wanted);
      kernels<T>().apply_mask(in_place, uploaded, bits::keep_scale(p), in_place);
      CHECK_SAME_BITS(in_place.template to_vector<T>(), wanted);
    }
}

namespace {

// embed_dropout and its backward for ids (batch, length) against the scalar code.
template <class T>
void check_embed(std::int64_t batch, std::int64_t length, std::int64_t d, double p, int position_rank,
                 std::int64_t token_rows = 5) {
  CAPTURE(batch);
  CAPTURE(length);
  CAPTURE(d);
  CAPTURE(p);
  CAPTURE(position_rank);
  const std::int64_t n = batch * length, position_rows = length + 3, start = 2, padding = 1;
  const wg::Dropout dropout{p, {.seed = 77, .stream = 1, .counter = 640}};
  const bits::Drawing drawing{.p = p, .seed = 77, .stream = 1, .base = 640};
  const auto tokens = special_values<T>(token_rows * d, 14), positions = random_values<T>(position_rows * d, 15);
  const Ids ids = random_ids(n, token_rows, 16), free_places = random_ids(n, position_rows, 17);
  Ids places(size(n));
  for (std::size_t i = 0; i < places.size(); ++i) {
    const std::size_t t = i % size(length);
    places[i] = position_rank == 0 ? start + static_cast<std::int64_t>(t) : free_places[position_rank == 1 ? t : i];
  }
  wg::Positions place{{}, start};
  if (position_rank == 1)
    place.ids = upload(Ids(places.begin(), places.begin() + static_cast<std::ptrdiff_t>(length)), {length});
  if (position_rank == 2) place.ids = upload(places, {batch, length});

  std::vector<T> wanted(size(n * d));
  bits::embed_dropout(tokens.data(), positions.data(), ids.data(), places.data(), n, d, drawing, wanted.data());
  wg::Kernels& k = kernels<T>();
  const Tensor uploaded_ids = upload(ids, {batch, length});
  Tensor out = unwritten<T>({batch, length, d});
  wg::Saved saved;
  k.embed_dropout(upload(tokens, {token_rows, d}), upload(positions, {position_rows, d}), uploaded_ids, place, dropout,
                  out, saved);
  CHECK_SAME_BITS(out.template to_vector<T>(), wanted);

  auto grad = special_values<T>(n * d, 18);
  const Tensor upstream = upload(grad, {batch, length, d});
  for (std::int64_t e = 0; e < n * d; ++e)
    if (p > 0) grad[size(e)] = drawing.keeps(e) ? grad[size(e)] * static_cast<T>(bits::keep_scale(p)) : T(0);
  wg::RowGrad token_grad, position_grad;
  k.embed_dropout_backward(upstream, uploaded_ids, place, dropout, saved, token_rows, position_rows, padding,
                           &token_grad, &position_grad);
  check_merged(token_grad, Merged<T>(ids, grad, d, &padding), token_rows, d);
  check_merged(position_grad, Merged<T>(places, grad, d), position_rows, d);
}

}  // namespace

TEST_CASE_TEMPLATE("embed_dropout and its backward, fused or not, have the bits of docs/bits.md", T, float, double) {
  for (std::int64_t d = 1; d <= 67; ++d) check_embed<T>(3, 5, d, 0.37, 0);
  for (const double p : {0.0, 0.1, 0.5, 0.9, 1.0})
    for (const int position_rank : {0, 1, 2}) {
      check_embed<T>(1, 1, 3, p, position_rank);
      check_embed<T>(2, 17, 64, p, position_rank);
      check_embed<T>(70, 2, 9, p, position_rank);  // position sums of more than two blocks
    }
  for (const std::int64_t d : {64, 100, 128, 129, 192, 260, 333})  // most tokens occur once
    for (const std::int64_t batch : {1, 3, 33, 64, 65}) check_embed<T>(batch, 7, d, 0.1, 0, 20 * batch);
}

namespace {

template <class T>
struct Problem {  // a table with a gradient, and its buffers
  static constexpr std::int64_t rows = 7;
  std::int64_t d;
  std::vector<T> param, first, second, grad, sparse;
  Ids ids{1, 2, 5};
  explicit Problem(std::int64_t width)
      : d(width),
        param(random_values<T>(rows * d, 20)),
        first(random_values<T>(rows * d, 21)),
        second(random_values<T>(rows * d, 22)),
        grad(special_values<T>(rows * d, 23)),
        sparse(random_values<T>(3 * d, 24)) {
    for (T& v : second) v = v * v;
  }
  wg::Gradient gradient(bool dense) const {
    if (dense) return upload(grad, {rows, d});
    return wg::RowGrad{upload(ids, {3}), upload(sparse, {3, d}), rows};
  }
  bits::GradientView<T> view(bool dense) const {
    return dense ? bits::GradientView<T>{grad.data()} : bits::GradientView<T>{sparse.data(), ids.data(), 3};
  }
};

template <class T>
void check_sgd(const wg::SgdStep& step, std::int64_t d, bool dense) {
  Problem<T> problem(d);
  const bool has_momentum = step.momentum != 0.0;
  if (step.first) std::fill(problem.first.begin(), problem.first.end(), T(0));
  const Shape shape{problem.rows, d};
  Tensor param = upload(problem.param, shape), buffer = has_momentum ? upload(problem.first, shape) : Tensor();
  kernels<T>().sgd_step(step, problem.gradient(dense), param, buffer);
  bits::sgd_step(step, problem.view(dense), problem.rows, d, problem.param.data(),
                 has_momentum ? problem.first.data() : nullptr);
  CHECK_SAME_BITS(param.to_vector<T>(), problem.param);
  if (has_momentum) CHECK_SAME_BITS(buffer.to_vector<T>(), problem.first);
}

template <class T>
void check_adam(const wg::AdamStep& step, std::int64_t d, bool dense) {
  Problem<T> problem(d);
  const Shape shape{problem.rows, d};
  Tensor param = upload(problem.param, shape), m = upload(problem.first, shape), v = upload(problem.second, shape);
  kernels<T>().adam_step(step, problem.gradient(dense), param, m, v);
  bits::adam_step(step, problem.view(dense), problem.rows, d, problem.param.data(), problem.first.data(),
                  problem.second.data());
  CHECK_SAME_BITS(param.to_vector<T>(), problem.param);
  CHECK_SAME_BITS(m.to_vector<T>(), problem.first);
  CHECK_SAME_BITS(v.to_vector<T>(), problem.second);
}

}  // namespace

TEST_CASE_TEMPLATE("sgd_step: every option, dense, row-sparse and lazy", T, float, double) {
  for (const double momentum : {0.0, 0.9})
    for (const double decay : {0.0, 0.01})
      for (const bool nesterov : {false, true})
        for (const bool first : {false, true})
          for (const bool lazy : {false, true})
            for (const bool dense : {false, true})
              for (const std::int64_t d : {1, 3, 17, 64, 67})
                check_sgd<T>({0.1, momentum, nesterov ? 0.0 : 0.3, decay, nesterov, first, lazy}, d, dense);
  for (std::int64_t d = 0; d <= 67; ++d) check_sgd<T>({.lr = 0.1, .momentum = 0.9}, d, true);
  check_sgd<T>({.lr = std::numeric_limits<double>::infinity()}, 3, false);  // inf * 0 in absent rows
  check_sgd<T>({.lr = -0.5}, 3, false);
}

TEST_CASE_TEMPLATE("adam_step: every option, dense, row-sparse and lazy", T, float, double) {
  for (const double decay : {0.0, 0.01})
    for (const bool decoupled : {false, true})
      for (const std::int64_t step : {1, 2, 1000})
        for (const bool lazy : {false, true})
          for (const bool dense : {false, true})
            for (const std::int64_t d : {1, 3, 17, 64, 67})
              check_adam<T>(
                  {.lr = 1e-3, .weight_decay = decay, .decoupled = decoupled, .step = step, .lazy_rows = lazy}, d,
                  dense);
  for (std::int64_t d = 0; d <= 67; ++d) check_adam<T>({.lr = 1e-3, .weight_decay = 0.1, .decoupled = true}, d, true);
}

TEST_CASE_TEMPLATE("a step along no rows at all", T, float, double) {
  const wg::Gradient none = wg::RowGrad{wg::empty({0}, wg::DType::int64), wg::empty({0, 3}, wg::dtype_of<T>), 4};
  const auto values = random_values<T>(12, 30);
  Tensor param = upload(values, {4, 3}), m = wg::zeros({4, 3}, param), v = wg::zeros({4, 3}, param), no_buffer;
  kernels<T>().sgd_step({.lr = 0.1}, none, param, no_buffer);
  kernels<T>().adam_step({.lr = 0.1, .lazy_rows = true}, none, param, m, v);
  CHECK_SAME_BITS(param.template to_vector<T>(), values);
}
