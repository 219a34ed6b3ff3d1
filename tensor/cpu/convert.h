// Runs of elements to and from the type that arithmetic runs in.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace mezzo::cpu {

/// Elements in the stack buffers of a kernel: small enough for L1 with four operands, large enough to
/// amortise calls.
inline constexpr int64_t kChunk = 512;

/// out[i] = T(in[i * stride]) for n elements of type `dtype`; float to and from the 16-bit types runs
/// vectorised.
template <class T>
void load_run(T* out, const void* in, DType dtype, int64_t stride, int64_t n);
/// out[i * stride] = dtype(in[i]).
template <class T>
void store_run(void* out, DType dtype, int64_t stride, const T* in, int64_t n);

/// out[i] = in[i] by the processor's own rounding where it has one, which may take subnormal numbers for 0:
/// for operands of products that do so too.
void round_run(BFloat16* out, const float* in, int64_t n);

}  // namespace mezzo::cpu
