// Products of integer matrices, which cuBLAS does not have.
#pragma once

#include "tensor/kernels.h"

namespace mezzo::cuda {

/// As the table's matmul, for int64, int32 and uint8; results beyond the dtype wrap.
void matmul_integer(const View& out, const View& a, const View& b, const View& bias);

}  // namespace mezzo::cuda
