// Views made from others, and what is asked of their memory: for the host's side of kernels.
#pragma once

#include <cstdint>
#include <span>

#include "cuda/context.h"
#include "tensor/kernels.h"

namespace mezzo::cuda {

/// Dimensions [from, to) of a view alone; a view that is not given stays as it is.
inline View dimensions(const View& view, int from, int to) {
  if (!view.given()) return view;
  const auto part = [&](const Shape& sizes) {
    return Shape(std::span(sizes.begin() + from, sizes.begin() + to));
  };
  return {view.data, view.dtype, part(view.shape), part(view.strides)};
}

/// The batch dimensions of matrices [..., M, N].
inline View batches_of(const View& matrices) { return dimensions(matrices, 0, matrices.shape.dim() - 2); }

/// A bias [N] as every row of [..., N].
inline View in_every_row(const View& bias, const Shape& shape) {
  View rows{bias.data, bias.dtype, shape, Shape::filled(shape.dim(), 0)};
  rows.strides[shape.dim() - 1] = bias.strides[0];
  return rows;
}

/// Whether memory begins at a multiple of 16 bytes, what a thread moves at once.
inline bool is_aligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }

/// Whether a view has `strides`, leaving out dimensions of size 1, whose strides mean nothing.
inline bool has_strides(const View& view, const Shape& strides) {
  for (int d = 0; d < view.shape.dim(); ++d) {
    if (view.shape[d] != 1 && view.strides[d] != strides[d]) return false;
  }
  return true;
}

/// A tensor in scratch memory; row-major without `strides`, which must be those of a dense layout.
class ScratchTensor {
 public:
  ScratchTensor(DType dtype, const Shape& shape, const Shape& strides)
      : memory_(static_cast<size_t>(shape.numel()) * size_of(dtype)),
        view_{memory_.data(), dtype, shape, strides} {}
  ScratchTensor(DType dtype, const Shape& shape) : ScratchTensor(dtype, shape, contiguous_strides(shape)) {}

  const View& view() const { return view_; }

 private:
  Scratch memory_;
  View view_;
};

}  // namespace mezzo::cuda
