// What the product kernels share.
#pragma once

#include "tensor/kernels.h"

namespace mezzo::cpu {

/// The dtype in which `rows` rows of `dtype` are multiplied: float32 for a 16-bit type that the library below
/// does not multiply, or more slowly.
DType product_dtype(DType dtype, int64_t rows);

/// out[..., c, ...] = bias[c], c counting dimension `dim`, or 0 if bias is not given: what sums of products
/// start from.
void fill_with_bias(const View& out, const View& bias, int dim);

/// The same memory as a matrix [N, M] for [M, N].
View transposed(const View& matrix);

/// As in the table of kernels.
void matmul(const View& out, const View& a, const View& b, const View& bias);

/// out[..., M, N] += a[..., M, K] b[..., K, N], by Eigen; all of one dtype other than the 16-bit ones. Each
/// matrix has stride 1 along its rows or columns, those of `out` along its rows. The same bits for any number
/// of threads.
void add_product(const View& out, const View& a, const View& b);

}  // namespace mezzo::cpu
