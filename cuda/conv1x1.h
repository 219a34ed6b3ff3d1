// What a 1x1 convolution with statistics does beside its products and its normalisation.
#pragma once

#include "tensor/kernels.h"

namespace mezzo::cuda {

/// total [P, O] = grad_out + grad_mean / P + grad_var * 2 (out - mean) / P, in one pass; sums [O] = sum of
/// its rows, before they are rounded. The gradients may be not given, and so may `sums`.
void add_statistics_grad(const View& total, const View& sums, const View& grad_out, const View& grad_mean,
                         const View& grad_var, const View& out, const View& mean);

}  // namespace mezzo::cuda
