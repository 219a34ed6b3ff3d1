// Products of matrices by cuBLAS.
#pragma once

#include "tensor/kernels.h"

namespace mezzo::cuda {

/// out = a b, or out + a b if `add`, of matrices [M, N] = [M, K] [K, N] of one floating dtype, any strides;
/// each with the same batch dimensions in front (stride 0 where expanded), or none. Sums in float32 (float64
/// for float64), which `out` may have for 16-bit a and b too.
void gemm(const View& out, const View& a, const View& b, bool add = false);

/// The view with its last two dimensions exchanged.
View transposed(const View& matrix);

}  // namespace mezzo::cuda
