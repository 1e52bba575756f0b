#include "wengert/random.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numbers>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "wengert/bits.hpp"
#include "wengert/tape.hpp"

namespace wengert {

// --- Generator ---

void Generator::manual_seed(std::uint64_t seed, std::uint64_t stream) { set_state({seed, stream, 0}); }

RandomState Generator::reserve(std::uint64_t blocks) {
  return {seed_, stream_, std::atomic_ref(counter_).fetch_add(blocks)};
}

RandomState Generator::state() const {
  return {seed_, stream_, std::atomic_ref(const_cast<std::uint64_t&>(counter_)).load()};
}

void Generator::set_state(const RandomState& state) {
  seed_ = state.seed;
  stream_ = state.stream;
  std::atomic_ref(counter_).store(state.counter);
}

namespace {
thread_local Generator* scoped = nullptr;
}  // namespace

Generator& default_generator() {
  static Generator generator;
  return scoped ? *scoped : generator;
}

void manual_seed(std::uint64_t seed, std::uint64_t stream) { default_generator().manual_seed(seed, stream); }

GeneratorScope::GeneratorScope(Generator& generator) : previous_(std::exchange(scoped, &generator)) {}
GeneratorScope::~GeneratorScope() { scoped = previous_; }

// --- Initialisers: one block of four words makes two doubles ---

namespace {

struct Pair {
  double first, second;
};

// Two uniform values in [0, 1) of 53 bits.
Pair uniform_pair(const RandomState& state, std::uint64_t block) {
  const bits::Words words = bits::philox(state.seed, state.stream, state.counter + block);
  const auto unit = [&](int i) {
    const std::uint64_t high = words.word[i] >> 5, low = words.word[i + 1] >> 6;
    return static_cast<double>((high << 26) | low) * 0x1p-53;
  };
  return {unit(0), unit(2)};
}

// Two independent normal values. Source: Box and Muller, Ann. Math. Statist. 29 (1958).
Pair normal_pair(const RandomState& state, std::uint64_t block) {
  const Pair u = uniform_pair(state, block);
  const double radius = std::sqrt(-2.0 * std::log(1.0 - u.first)), angle = 2.0 * std::numbers::pi * u.second;
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

// Fills a tensor with value(i), computed in double and rounded once.
template <class T, class Value>
void assign(Tensor& tensor, Value value) {
  std::vector<T> values(static_cast<std::size_t>(tensor.numel()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<T>(value(i));
  const NoGrad pause;
  tensor.copy_(wengert::tensor(values, tensor.shape(), tensor.backend()));
}

void require_floating(const char* op, DType dtype) {
  if (!is_floating(dtype)) throw DTypeError(fmt::format("{}: needs float32 or float64, not {}", op, name_of(dtype)));
}

template <class Draw>
Tensor& fill_pairs(const char* op, Tensor& tensor, Generator& generator, Draw draw) {
  require_floating(op, tensor.dtype());
  const RandomState state = generator.reserve((static_cast<std::uint64_t>(tensor.numel()) + 1) / 2);
  Pair pair{};
  const auto value = [&](std::size_t i) {
    if (i % 2 == 1) return pair.second;
    pair = draw(state, i / 2);
    return pair.first;
  };
  if (tensor.dtype() == DType::float32)
    assign<float>(tensor, value);
  else
    assign<double>(tensor, value);
  return tensor;
}

}  // namespace

Tensor randn(const Shape& shape, DType dtype, Generator& generator) {
  require_floating("randn", dtype);
  Tensor out = empty(shape, dtype);
  return normal_(out, 0.0, 1.0, generator);
}

Tensor rand(const Shape& shape, DType dtype, Generator& generator) {
  require_floating("rand", dtype);
  Tensor out = empty(shape, dtype);
  return uniform_(out, 0.0, 1.0, generator);
}

Tensor randint(std::int64_t low, std::int64_t high, const Shape& shape, Generator& generator) {
  if (low >= high) throw ValueError(fmt::format("randint: [{}, {}) holds no integer", low, high));
  __extension__ using Wide = unsigned __int128;
  const auto range = static_cast<Wide>(static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low));
  Tensor out = empty(shape, DType::int64);  // first, for its checks of the size
  const auto count = static_cast<std::uint64_t>(shape.numel());
  const RandomState state = generator.reserve((count + 1) / 2);
  std::vector<std::int64_t> values(count);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const bits::Words words = bits::philox(state.seed, state.stream, state.counter + i / 2);
    const std::size_t half = i % 2 * 2;
    const std::uint64_t word = words.word[half] | (static_cast<std::uint64_t>(words.word[half + 1]) << 32);
    // The upper half of a 128-bit product: as even as 64 bits allow.
    values[i] =
        static_cast<std::int64_t>(static_cast<std::uint64_t>(low) + static_cast<std::uint64_t>((word * range) >> 64));
  }
  return out.copy_(tensor(values, shape));
}

namespace {

// Where `target` falls on the line on which the weights lie one after the other; never on a weight of 0.
std::int64_t place_on(std::span<const double> ends, double target) {
  const auto found = std::upper_bound(ends.begin(), ends.end(), target);
  // Rounding may put the target at the very end: that belongs to the last weight above 0.
  return found != ends.end() ? found - ends.begin()
                             : std::lower_bound(ends.begin(), ends.end(), ends.back()) - ends.begin();
}

// The weights of one row, each end on that line; checks them.
std::vector<double> ends_of(std::span<const double> weights, std::int64_t row, std::int64_t least) {
  std::vector<double> ends;
  double total = 0.0;
  std::int64_t positive = 0;
  for (const double weight : weights) {
    if (!(weight >= 0.0 && std::isfinite(weight)))
      throw ValueError(
          fmt::format("multinomial: weight {} at [{}, {}] must be finite and not negative", weight, row, ends.size()));
    positive += weight > 0.0;
    ends.push_back(total += weight);
  }
  if (!std::isfinite(total))
    throw ValueError(fmt::format("multinomial: the weights of row {} add up to more than a double holds", row));
  if (positive < least)
    throw ValueError(
        fmt::format("multinomial: row {} has {} weights above 0, needs {} at least", row, positive, least));
  return ends;
}

}  // namespace

Tensor multinomial(const Tensor& probabilities, std::int64_t num_samples, bool replacement, Generator& generator) {
  require_floating("multinomial", probabilities.dtype());
  const Shape& shape = probabilities.shape();
  if (shape.rank() != 1 && shape.rank() != 2)
    throw ShapeError(fmt::format("multinomial: probabilities must have shape (n) or (rows, n), got {}", shape.str()));
  if (num_samples < 1)
    throw ValueError(fmt::format("multinomial: num_samples is {}; it must be positive", num_samples));
  const std::int64_t n = shape.size(-1), rows = shape.rank() == 2 ? shape[0] : 1;
  Tensor out = empty(shape.rank() == 2 ? Shape{rows, num_samples} : Shape{num_samples}, DType::int64,
                     probabilities.backend());  // first, for its checks of the size
  const std::vector<double> values = probabilities.to_vector<double>();
  std::vector<std::vector<double>> ends;
  for (std::int64_t row = 0; row < rows; ++row)
    ends.push_back(ends_of(std::span(values).subspan(static_cast<std::size_t>(row * n), static_cast<std::size_t>(n)),
                           row, replacement ? 1 : num_samples));

  const std::int64_t draws = replacement ? num_samples : n;
  const RandomState state = generator.reserve((static_cast<std::uint64_t>(rows * draws) + 1) / 2);
  const auto unit = [&](std::int64_t i) {
    const Pair pair = uniform_pair(state, static_cast<std::uint64_t>(i) / 2);
    return i % 2 == 0 ? pair.first : pair.second;
  };
  std::vector<std::int64_t> drawn;
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::vector<double>& line = ends[static_cast<std::size_t>(row)];
    if (replacement) {
      for (std::int64_t i = 0; i < num_samples; ++i)
        drawn.push_back(place_on(line, unit(row * draws + i) * line.back()));
      continue;
    }
    // Independent exponential waiting times with these rates end in the order of draws without replacement.
    // Source: Efraimidis and Spirakis, "Weighted random sampling with a reservoir", Inf. Process. Lett. 97 (2006).
    std::vector<std::pair<double, std::int64_t>> waits;
    for (std::int64_t i = 0; i < n; ++i)
      if (const double weight = values[static_cast<std::size_t>(row * n + i)]; weight > 0.0)
        waits.emplace_back(-std::log1p(-unit(row * draws + i)) / weight, i);
    std::partial_sort(waits.begin(), waits.begin() + num_samples, waits.end());
    for (std::int64_t i = 0; i < num_samples; ++i) drawn.push_back(waits[static_cast<std::size_t>(i)].second);
  }
  return tensor(drawn, out.shape(), probabilities.backend());
}

Tensor& normal_(Tensor& tensor, double mean, double std, Generator& generator) {
  if (!(std >= 0.0)) throw ValueError(fmt::format("normal_: std {} must be >= 0", std));
  return fill_pairs("normal_", tensor, generator, [=](const RandomState& state, std::uint64_t block) {
    const Pair normal = normal_pair(state, block);
    return Pair{mean + std * normal.first, mean + std * normal.second};
  });
}

Tensor& uniform_(Tensor& tensor, double low, double high, Generator& generator) {
  if (!(low <= high)) throw ValueError(fmt::format("uniform_: [{}, {}) is not a range", low, high));
  const bool single = tensor.dtype() == DType::float32;
  // The upper end does not belong to the range, not even after rounding.
  const double last =
      single ? std::nextafter(static_cast<float>(high), static_cast<float>(low)) : std::nextafter(high, low);
  const auto place = [=](double unit) {
    const double value = low + (high - low) * unit;
    return (single ? static_cast<double>(static_cast<float>(value)) : value) < high ? value : last;
  };
  return fill_pairs("uniform_", tensor, generator, [=](const RandomState& state, std::uint64_t block) {
    const Pair unit = uniform_pair(state, block);
    return Pair{place(unit.first), place(unit.second)};
  });
}

Tensor& trunc_normal_(Tensor& tensor, double mean, double std, double low, double high, Generator& generator) {
  require_floating("trunc_normal_", tensor.dtype());
  const auto below = [&](double bound) { return 0.5 * std::erfc(-(bound - mean) / (std * std::numbers::sqrt2)); };
  if (!(std > 0.0) || !(low < high))
    throw ValueError(fmt::format("trunc_normal_: std {} must be > 0 and [{}, {}] a range", std, low, high));
  if (!(below(high) - below(low) > 1e-3))
    throw ValueError(
        fmt::format("trunc_normal_: [{}, {}] holds less than a thousandth of N({}, {}^2)", low, high, mean, std));
  Pair pair{};
  bool spare = false;
  const auto value = [&](std::size_t) {
    for (;;) {
      if (!spare) pair = normal_pair(generator.reserve(1), 0);
      const double drawn = mean + std * (spare ? pair.second : pair.first);
      spare = !spare;
      if (drawn >= low && drawn <= high) return drawn;
    }
  };
  if (tensor.dtype() == DType::float32)
    assign<float>(tensor, value);
  else
    assign<double>(tensor, value);
  return tensor;
}

Tensor numpy_randn(std::uint32_t seed, const Shape& shape, Backend& backend) {
  std::mt19937 twister(seed);
  const auto uniform = [&] {
    const double a = twister() >> 5, b = twister() >> 6;
    return (a * 67108864.0 + b) / 9007199254740992.0;
  };
  std::vector<double> values(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < values.size(); i += 2) {
    double x1 = 0.0, x2 = 0.0, r2 = 0.0;
    do {
      x1 = 2.0 * uniform() - 1.0;
      x2 = 2.0 * uniform() - 1.0;
      r2 = x1 * x1 + x2 * x2;
    } while (r2 >= 1.0 || r2 == 0.0);
    const double f = std::sqrt(-2.0 * std::log(r2) / r2);
    values[i] = f * x2;
    if (i + 1 < values.size()) values[i + 1] = f * x1;
  }
  return tensor(values, shape, backend);
}

}  // namespace wengert
