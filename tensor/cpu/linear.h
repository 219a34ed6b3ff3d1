// Linear maps in tiles of rows, each read and written once: for floating dtypes and weights that are not
// empty. As in the table of kernels.
#pragma once

#include "tensor/kernels.h"

namespace mezzo::cpu {

void linear_in_tiles(const View& out, const View& x, const View& weight, const View& bias, LinearWith with);
void linear_grad_in_tiles(const LinearGrads& grads, const View& grad_out, const View& out, const View& x,
                          const View& weight, LinearWith with);

}  // namespace mezzo::cpu
