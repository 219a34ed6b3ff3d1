// Copying, for kernels that need an operand in another layout or dtype.
#pragma once

#include "tensor/kernels.h"

namespace mezzo::cpu {

/// out = in, converted to out's dtype; the same shape, any strides.
void copy(const View& out, const View& in);

}  // namespace mezzo::cpu
