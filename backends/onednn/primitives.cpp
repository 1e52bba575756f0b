#include "primitives.hpp"

#include <fmt/format.h>
#include <omp.h>

#include <atomic>
#include <mutex>
#include <unordered_map>

#include <oneapi/dnnl/dnnl.hpp>

#include "parallel.hpp"
#include "wengert/backends/onednn.hpp"
#include "wengert/error.hpp"
#include "wengert/storage.hpp"

namespace wengert::onednn {

namespace {

using dnnl::memory;
using Dims = memory::dims;

memory::desc matrix(const Dims& extents, const Dims& strides) { return {extents, memory::data_type::f32, strides}; }

// A (batch, rows, columns) operand; stored (batch, columns, rows) if transposed, without a batch axis if shared.
memory::desc operand(std::int64_t batch, std::int64_t rows, std::int64_t columns, bool transposed, bool shared) {
  return matrix({shared ? 1 : batch, rows, columns},
                transposed ? Dims{rows * columns, 1, rows} : Dims{rows * columns, columns, 1});
}

dnnl::engine& engine() {
  static dnnl::engine& cpu =
      *new dnnl::engine(dnnl::engine::kind::cpu, 0);  // never destroyed: threads may outlive it otherwise
  return cpu;
}

// What is needed to run a primitive: itself, and what its operands look like.
struct Made {
  dnnl::primitive primitive;
  memory::desc a, b, bias, out, scratchpad;
};

// The interface for making primitives changed in 3.0: descriptors are given to the primitive descriptor directly.
#if DNNL_VERSION_MAJOR >= 3
auto describe_add(const memory::desc& a, const memory::desc& b, const memory::desc& out,
                  const dnnl::primitive_attr& attr) {
  return dnnl::binary::primitive_desc(engine(), dnnl::algorithm::binary_add, a, b, out, attr);
}
auto describe_product(const memory::desc& a, const memory::desc& b, const memory::desc& bias, const memory::desc& out,
                      const dnnl::primitive_attr& attr) {
  return dnnl::matmul::primitive_desc(engine(), a, b, bias, out, attr);
}
void append_scale(dnnl::post_ops& ops, float scale) {
  ops.append_eltwise(dnnl::algorithm::eltwise_linear, scale, 0.0F);
}
#else
auto describe_add(const memory::desc& a, const memory::desc& b, const memory::desc& out,
                  const dnnl::primitive_attr& attr) {
  return dnnl::binary::primitive_desc({dnnl::algorithm::binary_add, a, b, out}, attr, engine());
}
auto describe_product(const memory::desc& a, const memory::desc& b, const memory::desc& bias, const memory::desc& out,
                      const dnnl::primitive_attr& attr) {
  return dnnl::matmul::primitive_desc(bias ? dnnl::matmul::desc(a, b, bias, out) : dnnl::matmul::desc(a, b, out), attr,
                                      engine());
}
void append_scale(dnnl::post_ops& ops, float scale) {
  ops.append_eltwise(1.0F, dnnl::algorithm::eltwise_linear, scale, 0.0F);
}
#endif

template <class Descriptor>
void finish(Made& made, const Descriptor& descriptor, dnnl::primitive primitive) {
  made.primitive = std::move(primitive);
  made.scratchpad = descriptor.scratchpad_desc();
}

Made make(const Key& key) {
  Made made;
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(
      dnnl::scratchpad_mode::user);  // belongs to the call, so one primitive can run in many threads
  const auto [first, second, third, fourth] = key.extents;
  switch (key.kind) {
    case Key::Kind::add: {
      made.a = made.out = matrix({first, second}, {second, 1});
      made.b = third != 0 ? matrix({1, second}, {second, 1}) : made.a;
      const auto descriptor = describe_add(made.a, made.b, made.out, attr);
      finish(made, descriptor, dnnl::binary(descriptor));
      break;
    }
    case Key::Kind::product: {
      made.a = operand(first, second, fourth, key.trans_a, key.share_a);
      made.b = operand(first, fourth, third, key.trans_b, key.share_b);
      made.out = operand(first, second, third, false, false);
      if (key.bias) made.bias = matrix({1, 1, third}, {third, third, 1});
      dnnl::post_ops ops;
      if (key.alpha != 1.0F) append_scale(ops, key.alpha);
      if (key.beta != 0.0F) ops.append_sum(key.beta);
      attr.set_post_ops(ops);
      const auto descriptor = describe_product(made.a, made.b, made.bias, made.out, attr);
      finish(made, descriptor, dnnl::matmul(descriptor));
      break;
    }
  }
  return made;
}

struct Hash {
  std::size_t operator()(const Key& key) const {
    std::size_t hash = static_cast<std::size_t>(key.kind) | static_cast<std::size_t>(key.threads) << 8;
    const auto mix = [&hash](std::uint64_t value) { hash = (hash ^ value) * 0x9E3779B97F4A7C15U; };
    mix(static_cast<std::uint64_t>(key.trans_a) | static_cast<std::uint64_t>(key.trans_b) << 1 |
        static_cast<std::uint64_t>(key.share_a) << 2 | static_cast<std::uint64_t>(key.share_b) << 3 |
        static_cast<std::uint64_t>(key.bias) << 4);
    mix(std::hash<float>()(key.alpha)), mix(std::hash<float>()(key.beta));
    for (const std::int64_t extent : key.extents) mix(static_cast<std::uint64_t>(extent));
    return hash;
  }
};

std::atomic<std::size_t> made_so_far{0};

// Shapes that change with every call must not fill the memory: beyond this many the collection starts anew.
constexpr std::size_t most_kept = 512;

// A handle of its own: oneDNN's objects are counted.
Made primitive_of(const Key& key) {
  struct Cache {
    std::mutex mutex;
    std::unordered_map<Key, Made, Hash> primitives;
  };
  static Cache& cache = *new Cache;
  {
    const std::lock_guard lock(cache.mutex);
    if (const auto found = cache.primitives.find(key); found != cache.primitives.end()) return found->second;
  }
  Made made = make(key);  // takes milliseconds: other threads go on
  ++made_so_far;
  const std::lock_guard lock(cache.mutex);
  if (cache.primitives.size() >= most_kept) cache.primitives.clear();
  return cache.primitives.emplace(key, std::move(made)).first->second;
}

// A thread's own handles to its operands, kept because making them allocates.
struct Call {
  Made made;
  memory a, b, bias, out, scratchpad;
  std::unordered_map<int, memory> arguments;

  explicit Call(const Key& key) : made(primitive_of(key)) {
    const auto add = [this](int which, memory& place, const memory::desc& descriptor) {
      place = memory(descriptor, engine(), nullptr);
      arguments.emplace(which, place);
    };
    const bool add_kind = key.kind == Key::Kind::add;
    add(add_kind ? DNNL_ARG_SRC_0 : DNNL_ARG_SRC, a, made.a);
    add(add_kind ? DNNL_ARG_SRC_1 : DNNL_ARG_WEIGHTS, b, made.b);
    if (key.bias) add(DNNL_ARG_BIAS, bias, made.bias);
    add(DNNL_ARG_DST, out, made.out);
    add(DNNL_ARG_SCRATCHPAD, scratchpad, made.scratchpad);
  }
};

// The number of threads that oneDNN asks OpenMP for, on this thread alone.
class ThreadLimit {
 public:
  explicit ThreadLimit(int threads) : before_(omp_get_max_threads()) { omp_set_num_threads(threads); }
  ThreadLimit(const ThreadLimit&) = delete;
  ThreadLimit& operator=(const ThreadLimit&) = delete;
  ~ThreadLimit() { omp_set_num_threads(before_); }

 private:
  int before_;
};

}  // namespace

std::size_t primitives_made() { return made_so_far; }

void run(const Key& key, const float* a, const float* b, const float* bias, float* out) {
  static thread_local std::unordered_map<Key, Call, Hash> calls;
  static thread_local dnnl::stream stream(engine());
  xsimd_backend::survive_forks();
  const ThreadLimit limit(key.threads);
  try {
    auto found = calls.find(key);
    if (found == calls.end()) {
      if (calls.size() >= most_kept) calls.clear();
      found = calls.emplace(key, Call(key)).first;
    }
    Call& call = found->second;
    const auto scratchpad = Storage::make(host_memory(), call.made.scratchpad.get_size());
    call.a.set_data_handle(const_cast<float*>(a));
    if (b) call.b.set_data_handle(const_cast<float*>(b));
    if (bias) call.bias.set_data_handle(const_cast<float*>(bias));
    call.out.set_data_handle(out);
    call.scratchpad.set_data_handle(scratchpad->write());
    call.made.primitive.execute(stream, call.arguments);
    stream.wait();
  } catch (const dnnl::error& error) {
    throw BackendError(fmt::format("onednn: {}", error.what()));
  }
}

}  // namespace wengert::onednn
