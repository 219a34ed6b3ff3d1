// Initial values of parameters. Each fills the tensor in place, unrecorded, from the default generator.
//   fan_in: inputs that a unit sums over, size(1) times the kernel's area; fan_out: size(0) times it
#pragma once

#include "tensor/tensor.h"

namespace mezzo::nn::init {

void uniform_(Tensor x, double low = 0, double high = 1);
void normal_(Tensor x, double mean = 0, double std = 1);
void constant_(Tensor x, double value);

/// Uniform in +-sqrt(6 / ((1 + a^2) fan_in)), which keeps the variance through ReLU with slope a below 0.
/// He et al., "Delving deep into rectifiers" (2015).
void kaiming_uniform_(Tensor x, double a = 0);
/// Normal with variance 2 / ((1 + a^2) fan_in).
void kaiming_normal_(Tensor x, double a = 0);
/// Uniform in +-gain sqrt(6 / (fan_in + fan_out)). Glorot and Bengio, "Understanding the difficulty of
/// training deep feedforward neural networks" (2010).
void xavier_uniform_(Tensor x, double gain = 1);
/// Normal with variance gain^2 2 / (fan_in + fan_out).
void xavier_normal_(Tensor x, double gain = 1);

/// What Linear and Conv2d start with: both uniform in +-1 / sqrt(fan_in) of the weight (kaiming_uniform_ with
/// a = sqrt(5)), PyTorch's default. `bias` may be undefined.
void default_(Tensor weight, Tensor bias);

}  // namespace mezzo::nn::init
