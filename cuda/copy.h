// Copying and filling views of device memory.
#pragma once

#include "tensor/kernels.h"

namespace mezzo::cuda {

/// As in the table of kernels.
void copy(const View& out, const View& in);
void fill(const View& out, Scalar value);

}  // namespace mezzo::cuda
