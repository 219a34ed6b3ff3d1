// Copies on a device, for the backend's own files.
#pragma once

#include "tensor/kernels.h"

namespace mezzo::cuda {

/// Kernels::copy: out = in, of one shape, converted to out's dtype.
void copy(const View& out, const View& in);
/// Kernels::fill.
void fill(const View& out, Scalar value);

}  // namespace mezzo::cuda
