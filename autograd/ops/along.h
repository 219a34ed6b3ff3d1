// Where a list of values lies along one dimension of a tensor.
#pragma once

#include "autograd/ops.h"

namespace mezzo::ops {

/// The values as a shape of `dims` dimensions that broadcasts along all of them but d.
inline Tensor along(const Tensor& values, int d, int dims) {
  Shape shape = Shape::filled(dims, 1);
  if (dims > 0) shape[d] = values.numel();
  return reshape(values, shape);
}

}  // namespace mezzo::ops
