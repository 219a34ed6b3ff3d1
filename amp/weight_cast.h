// The cast of a weight is kept with the weight, so that it is made once per change of the weight. It is data
// alone: each use has its own cast in the graph, so gradients of several uses are added up in float32.
#pragma once

#include "tensor/tensor.h"

namespace mezzo::amp {

/// x in `dtype`, differentiable. The memory is shared by all casts of one weight (a leaf that requires grad
/// and is no view) until the weight changes. Any number of threads may ask at once.
Tensor cast(const Tensor& x, DType dtype);

}  // namespace mezzo::amp
