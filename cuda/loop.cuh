// Walking views of one shape in a kernel: from an element's number to its place in each of them.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>

#include "cuda/launch.cuh"
#include "tensor/strided_loop.h"

namespace mezzo::cuda {

/// Sizes and strides of n views with their dimensions merged and ordered for the first view's memory
/// (tensor/strided_loop.h), as an argument of a kernel.
template <int n>
struct Walk {
  int dims;
  bool small;  ///< element numbers fit 32 bits, whose divisions cost a fifth
  int64_t count;
  int64_t sizes[Shape::max_dims];
  int64_t strides[Shape::max_dims][n];

  explicit Walk(const std::array<const View*, n>& views) {
    const StridedLoop loop{std::span<const View* const>(views)};
    dims = loop.dims();
    count = loop.size();
    small = count <= std::numeric_limits<int32_t>::max();
    for (int d = 0; d < dims; ++d) {
      sizes[d] = loop.size(d);
      for (int v = 0; v < n; ++v) strides[d][v] = loop.stride(d, v);
    }
  }

  /// Whether element i is at place i of every view that does not repeat one element, so that there is nothing
  /// to compute.
  bool is_linear() const {
    if (dims != 1) return false;
    for (int v = 0; v < n; ++v) {
      if (strides[0][v] != 1 && count != 1) return false;
    }
    return true;
  }

  /// Where element `i` is in each view.
  __device__ void places(int64_t i, int64_t (&place)[n]) const {
    for (int v = 0; v < n; ++v) place[v] = 0;
    for (int d = dims - 1; d >= 0; --d) {
      int64_t index;
      if (d == 0) {
        index = i;
      } else if (small) {
        const auto low = static_cast<uint32_t>(i), size = static_cast<uint32_t>(sizes[d]);
        index = low % size;
        i = low / size;
      } else {
        index = i % sizes[d];
        i /= sizes[d];
      }
      for (int v = 0; v < n; ++v) place[v] += index * strides[d][v];
    }
  }
};

}  // namespace mezzo::cuda
