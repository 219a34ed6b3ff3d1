// The matrices in the last two dimensions of a view.
#pragma once

#include "tensor/kernels.h"

namespace mezzo::cpu {

/// Size and stride of a dimension counted from the last, which is 1.
inline int64_t size_at(const View& view, int from_end) { return view.shape[view.shape.dim() - from_end]; }
inline int64_t stride_at(const View& view, int from_end) {
  return view.strides[view.strides.dim() - from_end];
}

/// Position of row `row` of matrix `batch`.
inline int64_t offset_of(const View& view, int64_t batch, int64_t row) {
  int64_t offset = row * stride_at(view, 2);
  for (int d = view.shape.dim() - 3; d >= 0; --d) {
    offset += batch % view.shape[d] * view.strides[d];
    batch /= view.shape[d];
  }
  return offset;
}

}  // namespace mezzo::cpu
