// What linear maps do beside their products, in one pass over the elements each.
#pragma once

#include "tensor/kernels.h"

namespace mezzo::cuda {

/// out = gelu(x), of one shape and dtype.
void gelu(const View& out, const View& x);
/// out = out * gelu'(x)
void multiply_by_gelu_slope(const View& out, const View& x);
/// out [P, O] = the larger of out + bias[O] and 0; the bias may be not given.
void add_bias_relu(const View& out, const View& bias);
/// With g = grad_out [P, O], or where `out` is given g = grad_out where that is not 0: sums [O] = sum of g's
/// rows, in an order that only the shape decides, and passed = g. Either may be not given.
void sum_of_rows(const View& sums, const View& passed, const View& grad_out, const View& out);

}  // namespace mezzo::cuda
