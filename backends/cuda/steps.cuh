#pragma once
// Optimiser steps.

#include <cmath>

#include "copy.cuh"
#include "kernels.hpp"
#include "vector.cuh"
#include "wengert/bits.hpp"

namespace wengert::cuda::inline WENGERT_CUDA_BUILD {

/// How the packs that a step visits, its parameter's and its gradient's are found.
enum class Visit : std::uint8_t {
  dense,   ///< all; the gradient is like the parameter
  lazy,    ///< the rows of a row-sparse gradient: `index` (rows of the gradient) are their ids
  absent,  ///< all; `index` (rows of the parameter) is the gradient's row or -1, where the gradient is +0
};

/// Pack i of a step: where its parameter lies, and its gradient.
template <class T, int n>
struct Stepped {
  std::int64_t place;
  Vec<T, n> grad;

  __device__ Stepped(Visit visit, const T* values, const std::int64_t* index, std::int64_t width, std::int64_t i)
      : place(i * n), grad{} {
    if (visit == Visit::dense) {
      grad = load<n>(values + i * n);
      return;
    }
    const std::int64_t at = __ldg(index + i / width), column = i % width;
    if (visit == Visit::lazy) {
      place = (at * width + column) * n;
      grad = load<n>(values + i * n);
    } else if (at >= 0) {
      grad = load<n>(values + (at * width + column) * n);
    }
  }
};

template <class T, int n>
__global__ void sgd_kernel(bits::SgdScalars<T> step, Visit visit, const T* values, const std::int64_t* index,
                           std::int64_t width, std::int64_t packs, T* param, T* momentum) {
  for (std::int64_t i = first_thread(); i < packs; i += grid_threads()) {
    const Stepped<T, n> at(visit, values, index, width, i);
    Vec<T, n> p = load_mutable<n>(param + at.place), buffer{};
    if (step.has_momentum) buffer = load_mutable<n>(momentum + at.place);
    WENGERT_UNROLL
    for (int k = 0; k < n; ++k) bits::sgd_element(step, at.grad.at[k], p.at[k], &buffer.at[k]);
    store(param + at.place, p);
    if (step.has_momentum) store(momentum + at.place, buffer);
  }
}

template <class T, int n>
__global__ void adam_kernel(bits::AdamScalars<T> step, Visit visit, const T* values, const std::int64_t* index,
                            std::int64_t width, std::int64_t packs, T* param, T* means, T* squares) {
  for (std::int64_t i = first_thread(); i < packs; i += grid_threads()) {
    const Stepped<T, n> at(visit, values, index, width, i);
    Vec<T, n> p = load_mutable<n>(param + at.place), m = load_mutable<n>(means + at.place),
              v = load_mutable<n>(squares + at.place);
    WENGERT_UNROLL
    for (int k = 0; k < n; ++k) bits::adam_element(step, at.grad.at[k], p.at[k], m.at[k], v.at[k]);
    store(param + at.place, p);
    store(means + at.place, m);
    store(squares + at.place, v);
  }
}

/// slots (rows of the parameter), filled with -1 before: which row of the gradient stands for it.
static __global__ void slots_kernel(const std::int64_t* ids, std::int64_t count, std::int64_t* slots) {
  for (std::int64_t k = first_thread(); k < count; k += grid_threads()) slots[ids[k]] = k;
}

/// Calls run(n, visit, values, index, width, packs) for what a step visits. `wide`: whether the parameter and what is
/// kept for it may be read in packs.
template <class T, class F>
void over_gradient(const Gradient& grad, const Tensor& param, bool skip_absent, bool wide, F run) {
  if (grad.is_dense()) {
    const T* values = read<T>(grad.tensor());
    with_width<T>(wide && aligned(values) && param.numel() % pack<T> == 0, [&](auto n) {
      run(n, Visit::dense, values, static_cast<const std::int64_t*>(nullptr), 1, param.numel() / n);
    });
    return;
  }
  const std::int64_t d = param.size(1), rows = param.size(0), count = grad.rows().count();
  const T* values = read<T>(grad.rows().rows);
  const auto* ids = read<std::int64_t>(grad.rows().ids);
  with_width<T>(wide && aligned(values) && d % pack<T> == 0, [&](auto n) {
    if (skip_absent) return run(n, Visit::lazy, values, ids, d / n, count * (d / n));
    if (param.numel() == 0) return;
    const Scratch<std::int64_t> slots(rows);
    launch({"fill", blocks_of_threads(rows)}, fill_kernel<std::int64_t, 1>, -1, slots.data(), rows);
    launch({"slots", blocks_of_threads(count)}, slots_kernel, ids, count, slots.data());
    run(n, Visit::absent, values, static_cast<const std::int64_t*>(slots.data()), d / n, rows * (d / n));
  });
}

template <class T>
void Kernels<T>::sgd_step(const SgdStep& step, const Gradient& grad, Tensor& param, Tensor& momentum) {
  const bits::SgdScalars<T> scalars(step);
  T* params = write<T>(param);
  T* buffers = scalars.has_momentum ? write<T>(momentum) : nullptr;
  // Without momentum and decay an absent row would become p - lr * 0, which is p.
  const bool no_op =
      !scalars.has_momentum && !scalars.has_decay && std::isfinite(scalars.lr) && !std::signbit(scalars.lr);
  over_gradient<T>(
      grad, param, step.lazy_rows || no_op, aligned(params, buffers),
      [&](auto n, Visit visit, const T* values, const std::int64_t* index, std::int64_t width, std::int64_t packs) {
        launch({"sgd_step", blocks_of_threads(packs)}, sgd_kernel<T, n()>, scalars, visit, values, index, width, packs,
               params, buffers);
      });
}

template <class T>
void Kernels<T>::adam_step(const AdamStep& step, const Gradient& grad, Tensor& param, Tensor& m, Tensor& v) {
  const bits::AdamScalars<T> scalars(step);
  T *params = write<T>(param), *means = write<T>(m), *squares = write<T>(v);
  over_gradient<T>(
      grad, param, step.lazy_rows, aligned(params, means, squares),
      [&](auto n, Visit visit, const T* values, const std::int64_t* index, std::int64_t width, std::int64_t packs) {
        launch({"adam_step", blocks_of_threads(packs)}, adam_kernel<T, n()>, scalars, visit, values, index, width,
               packs, params, means, squares);
      });
}

}  // namespace wengert::cuda::inline WENGERT_CUDA_BUILD
