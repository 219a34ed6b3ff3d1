// The products that oneDNN computes, over plain views; its headers stay in this folder.
#pragma once

#include "tensor/kernels.h"

namespace mezzo::cpu::onednn {

/// Whether this build has oneDNN. Without it the functions below are declared but not defined.
#ifdef MEZZO_ONEDNN
inline constexpr bool available = true;
#else
inline constexpr bool available = false;
#endif

/// Whether oneDNN multiplies `dtype` on this processor: float32, and bfloat16 from AVX-512 on.
bool multiplies(DType dtype);

/// As in the table of kernels, for such a dtype and nothing empty. `out` is row-major; rows or columns of `a`
/// and `b` have stride 1 and their elements do not overlap.
void matmul(const View& out, const View& a, const View& b, const View& bias);

/// As in the table of kernels, for such a dtype and nothing empty. Every operand is dense, row-major or
/// channels-last, bias has stride 1.
void conv2d(const View& out, const View& input, const View& weight, const View& bias,
            const ConvGeometry& geometry);
void conv2d_input_grad(const View& grad_input, const View& grad_out, const View& weight,
                       const ConvGeometry& geometry);
void conv2d_weight_grad(const View& grad_weight, const View& grad_out, const View& input,
                        const ConvGeometry& geometry);

}  // namespace mezzo::cpu::onednn
