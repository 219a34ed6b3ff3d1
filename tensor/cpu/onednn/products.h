// The products that oneDNN computes, over plain views; its headers stay in this folder.
#pragma once

#include <memory>
#include <string_view>

#include "tensor/kernels.h"

namespace mezzo::cpu::onednn {

/// Whether this build has oneDNN. Without it the functions below are declared but not defined.
#ifdef MEZZO_ONEDNN
inline constexpr bool available = true;
#else
inline constexpr bool available = false;
#endif

/// Whether oneDNN multiplies `rows` rows of `dtype` by a matrix on this processor in no more time than they
/// take as float32, with the conversion: float32 itself, bfloat16 where the processor multiplies that at its
/// rate or more, and for a few rows, since the matrix is then read but once, from AVX-512 on.
bool multiplies(DType dtype, int64_t rows);

/// "AMX" or "AVX512_BF16" if many rows of bfloat16 are multiplied so, else empty.
std::string_view bfloat16_unit();

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

/// A product of row-major tiles of bfloat16, by the calling thread alone: out[M, N] = a[M, K] b[K, N] in
/// float32, or, if `transposed_sum`, out += aᵀ b with a [K, M].
class TileProduct {
 public:
  TileProduct() = default;
  TileProduct(int64_t M, int64_t N, int64_t K, bool transposed_sum);

  /// Memory that a run needs, aligned to 64.
  size_t scratch_bytes() const;
  void run(float* out, const BFloat16* a, const BFloat16* b, void* scratch) const;

 private:
  struct Primitive;
  static std::shared_ptr<const Primitive> make(int64_t M, int64_t N, int64_t K, bool transposed_sum);

  std::shared_ptr<const Primitive> primitive_;
};

}  // namespace mezzo::cpu::onednn
