// The kernels of batch normalisation, entries of the table in tensor/kernels.h, for those of 1x1
// convolutions.
#pragma once

#include "tensor/kernels.h"

namespace mezzo::cuda {

void batch_norm_statistics(const View& mean, const View& var, const View& input);
void batch_norm_relu(const View& out, const View& input, const View& mean, const View& invstd,
                     const View& weight, const View& bias, const View& residual);
void batch_norm_relu_grad(const View& grad_input, const View& grad_weight, const View& grad_bias,
                          const View& grad_residual, const View& grad_out, const View& out, const View& input,
                          const View& mean, const View& invstd, const View& weight, const View& bias,
                          bool batch_statistics);

}  // namespace mezzo::cuda
