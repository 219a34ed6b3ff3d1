// The optimizers' kernels as their tests call them: one parameter, and what differs from the defaults.
#pragma once

#include <deque>

#include "tensor/cpu/kernel_families.h"
#include "tensor/reference/kernel_families.h"
#include "tests/tensor/kernel_views.h"

namespace mezzo {

inline Kernels table(bool reference) {
  Kernels kernels;
  reference ? reference::add_optimizers(kernels) : cpu::add_optimizers(kernels);
  return kernels;
}

inline constexpr double kBeta1 = 0.9, kBeta2 = 0.999;

/// A number where kernels read it, as long as the test program lives.
template <class T>
View number(T value) {
  static std::deque<T> numbers;
  return {&numbers.emplace_back(value), dtype_of<T>, {}, {}};
}
/// The state before step t.
inline View steps_before(int64_t t) { return number(t - 1); }

/// What the kernel is told.
inline AdamArgs adam_args(double lr, double weight_decay = 0, bool decoupled = false) {
  return {.state = {number(lr)},
          .beta1 = kBeta1,
          .beta2 = kBeta2,
          .eps = 1e-8,
          .weight_decay = weight_decay,
          .decoupled = decoupled,
          .maximize = false};
}

/// With momentum.
inline SgdArgs sgd_args(double lr) {
  return {.state = {number(lr)},
          .momentum = .9,
          .dampening = 0,
          .weight_decay = 0,
          .nesterov = false,
          .maximize = false};
}

/// One parameter's tensors, at step t.
inline AdamTensors adam_tensors(int64_t t, Elements& param, Elements& grad, Elements& first, Elements& second,
                                const View& most = {}) {
  return {.param = param.view(),
          .grad = grad.view(),
          .exp_avg = first.view(),
          .exp_avg_sq = second.view(),
          .max_exp_avg_sq = most,
          .steps = steps_before(t)};
}

/// The kernels for one parameter.
inline void adam(const Kernels& kernels, const AdamTensors& tensors, const AdamArgs& args) {
  kernels.adam({&tensors, 1}, args);
}
inline void sgd(const Kernels& kernels, const SgdTensors& tensors, const SgdArgs& args) {
  kernels.sgd({&tensors, 1}, args);
}

}  // namespace mezzo
