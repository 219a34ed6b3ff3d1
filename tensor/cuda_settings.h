// What a program may set for all CUDA devices.
#pragma once

namespace mezzo::cuda {

/// Whether products of float32 may round their operands to TensorFloat-32 (8 bits of exponent, 10 of
/// mantissa, sums in float32), which tensor cores multiply several times as fast. As in PyTorch, convolutions
/// do so and matrix products do not unless told otherwise. 16-bit operands are not affected: their products
/// are exact and their sums in float32 always.
void allow_tf32_matmul(bool allow);
void allow_tf32_convolution(bool allow);
bool tf32_matmul_allowed();
bool tf32_convolution_allowed();

}  // namespace mezzo::cuda
