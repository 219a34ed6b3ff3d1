// Activations as modules.
#pragma once

#include "autograd/ops.h"
#include "nn/module.h"

namespace mezzo::nn {

/// max(x, 0)
struct ReLU : Module {
  Tensor forward(const Tensor& x) override { return relu(x); }
};

}  // namespace mezzo::nn
