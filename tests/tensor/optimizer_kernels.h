// The optimizers' kernels as their tests call them: one parameter, and what differs from the defaults.
#pragma once

#include <cmath>

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

/// What the kernel is told.
inline AdamArgs adam_args(double lr, double weight_decay = 0, bool decoupled = false) {
  return {.beta1 = kBeta1,
          .beta2 = kBeta2,
          .eps = 1e-8,
          .weight_decay = decoupled ? 0 : weight_decay,
          .decay = decoupled ? 1 - lr * weight_decay : 1,
          .maximize = false};
}

/// One parameter's tensors, at step t.
inline AdamTensors adam_tensors(double lr, int t, Elements& param, Elements& grad, Elements& first,
                                Elements& second, const View& most = {}) {
  return {.param = param.view(),
          .grad = grad.view(),
          .exp_avg = first.view(),
          .exp_avg_sq = second.view(),
          .max_exp_avg_sq = most,
          .step_size = lr / (1 - std::pow(kBeta1, t)),
          .bias2_sqrt = std::sqrt(1 - std::pow(kBeta2, t))};
}

/// The kernels for one parameter.
inline void adam(const Kernels& kernels, const AdamTensors& tensors, const AdamArgs& args) {
  kernels.adam({&tensors, 1}, args);
}
inline void sgd(const Kernels& kernels, const SgdTensors& tensors, const SgdArgs& args) {
  kernels.sgd({&tensors, 1}, args);
}

}  // namespace mezzo
