// What the ops of batch normalisation share. Their first inputs are x, weight, bias, running_mean,
// running_var.
#pragma once

#include <string_view>

#include "autograd/ops.h"

namespace mezzo::ops {

inline int64_t values_per_channel(const Tensor& x) { return x.size(1) ? x.numel() / x.size(1) : 0; }

/// Throws Error, naming `op`, unless x is floating, [N, C, ...], and the others are what options need of [C].
void check_batch_norm(std::string_view op, Inputs in, const BatchNormOptions& options);

/// Mean and 1 / sqrt(var + eps) of each channel, in the compute type of x.
struct Normalisation {
  Tensor mean, invstd;
};
/// Those of the batch, which then feed the running ones, or the running ones.
Normalisation normalisation(Inputs in, const BatchNormOptions& options);

/// running = (1 - momentum) running + momentum batch, for the mean and for the variance, which is made
/// unbiased first: var n / (n - 1). Nothing if running_mean is undefined.
void update_running_statistics(const Tensor& running_mean, const Tensor& running_var, const Tensor& mean,
                               const Tensor& var, int64_t n, double momentum);

}  // namespace mezzo::ops
