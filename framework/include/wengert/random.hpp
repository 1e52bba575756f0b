#pragma once
/// Random numbers: Philox4x32-10, a counter-based generator. Every number is a function of (seed, stream, counter), so
/// the same call gives the same bits on every backend and with any number of threads. Source: J. K. Salmon et al.,
/// "Parallel random numbers: as easy as 1, 2, 3", SC 2011 (Random123).

#include <cstdint>

#include "wengert/tensor.hpp"

namespace wengert {

/// A place in the sequence of numbers.
struct RandomState {
  std::uint64_t seed = 0;     ///< the Philox key
  std::uint64_t stream = 0;   ///< upper 64 bits of the Philox counter
  std::uint64_t counter = 0;  ///< lower 64 bits: the next block of four words
};

/// Hands out blocks of random words. Thread-safe: each call of `reserve` gets blocks of its own.
class Generator {
 public:
  explicit Generator(std::uint64_t seed = 0, std::uint64_t stream = 0) { manual_seed(seed, stream); }
  /// Starts the sequence anew. Give each process of a group its own `stream` (its rank) and they draw independent
  /// numbers from one seed.
  void manual_seed(std::uint64_t seed, std::uint64_t stream = 0);
  /// The place before `blocks` blocks that from now on belong to the caller.
  RandomState reserve(std::uint64_t blocks);
  /// For checkpoints.
  RandomState state() const;
  void set_state(const RandomState& state);

 private:
  std::uint64_t seed_ = 0, stream_ = 0;
  std::uint64_t counter_ = 0;  // changed through std::atomic_ref
};

/// The generator that every operation uses when it is given none: this thread's innermost GeneratorScope, else the
/// process's, which starts with seed 0.
Generator& default_generator();
/// Restarts the default generator; see Generator::manual_seed.
void manual_seed(std::uint64_t seed, std::uint64_t stream = 0);

/// Makes `generator` this thread's default until the end of the scope, for training runs side by side.
class GeneratorScope {
 public:
  explicit GeneratorScope(Generator& generator);
  GeneratorScope(const GeneratorScope&) = delete;
  GeneratorScope& operator=(const GeneratorScope&) = delete;
  ~GeneratorScope();

 private:
  Generator* previous_;
};

// --- Initialisers. Computed in double on the host, rounded once, then uploaded: the same values on every backend. ---

/// Normal values (Box-Muller).
Tensor randn(const Shape& shape, DType dtype = DType::float32, Generator& generator = default_generator());
/// Uniform values in [0, 1).
Tensor rand(const Shape& shape, DType dtype = DType::float32, Generator& generator = default_generator());
/// Uniform integers in [low, high), int64. Throws ValueError unless low < high.
Tensor randint(std::int64_t low, std::int64_t high, const Shape& shape, Generator& generator = default_generator());

/// Indices drawn with the given weights, which need not add up to 1: probabilities (n) or (rows, n) -> int64
/// (num_samples) or (rows, num_samples). Without replacement no index comes twice, and the order is that of one draw
/// after another. Drawn on the host, in double: the same indices on every backend. Throws ValueError for num_samples <
/// 1, for a weight that is negative, infinite or NaN, for a row whose weights are all 0, and, without replacement, for
/// more samples than there are weights above 0; ShapeError for another rank.
Tensor multinomial(const Tensor& probabilities, std::int64_t num_samples, bool replacement = false,
                   Generator& generator = default_generator());

/// In place, leaves that require grad included (they are initialisers).
Tensor& normal_(Tensor& tensor, double mean = 0.0, double std = 1.0, Generator& generator = default_generator());
Tensor& uniform_(Tensor& tensor, double low = 0.0, double high = 1.0, Generator& generator = default_generator());
/// Normal values, drawn again while outside [low, high] (absolute bounds, as PyTorch's `trunc_normal_`).
Tensor& trunc_normal_(Tensor& tensor, double mean = 0.0, double std = 1.0, double low = -2.0, double high = 2.0,
                      Generator& generator = default_generator());

/// NumPy's legacy generator: `numpy.random.seed(seed); numpy.random.randn(shape)`, bit for bit, float64.
/// Mersenne twister MT19937, 53-bit uniforms, Marsaglia's polar method.
Tensor numpy_randn(std::uint32_t seed, const Shape& shape, Backend& backend = current_backend());

}  // namespace wengert
