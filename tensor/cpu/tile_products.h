// The three products of a linear map over tiles of rows, by one thread each: y = x Wᵀ, dx = g W, dW = gᵀ x,
// with W [O, C]. Two classes of one interface: PanelProducts in floats or doubles, which serves every dtype,
// and RoundedProducts in bfloat16 by oneDNN, where the processor multiplies that. Here is what both need.
#pragma once

#include <algorithm>
#include <vector>

#include "tensor/cpu/parallel.h"
#include "tensor/cpu/runs.h"
#include "tensor/cpu/scratch.h"

namespace mezzo::cpu {

/// Which of the products are wanted.
struct ProductUse {
  bool forward = false, weight_grad = false, input_grad = false;
};

/// Rows of a tile, 128 of them unless it and the others would not stay in a cache of 1 MiB: a weight is read
/// once a tile, so few rows cost time, and many cost memory and threads that have nothing to do. A power of
/// two, since most numbers of rows are multiples of one: a last tile of another size would need primitives of
/// its own.
inline int64_t tile_rows_for(int64_t rows, int64_t C, int64_t O) {
  constexpr int64_t kTileElements = 1 << 17, kMultiple = 8, kLeast = 32, kMost = 128;
  const int64_t fit = std::clamp(kTileElements / (C + O) / kMultiple * kMultiple, kLeast, kMost);
  return std::min(fit, std::max(kMultiple, (rows + kMultiple - 1) / kMultiple * kMultiple));
}

/// Gradients of the weight, one for each chunk of rows.
template <class T>
struct Partials {
  int64_t size;  ///< elements of one
  Scratch scratch;

  Partials(int64_t count, int64_t size)
      : size(size), scratch(static_cast<size_t>(count * size) * sizeof(T)) {}
  T* at(int64_t chunk) const { return scratch.as<T>() + chunk * size; }
};

/// out[o, c] = sum over the chunks of what add(chunk, o, c, n, sums) adds to sums[n], `width` columns at a
/// time for all rows, as partial sums lie.
template <class T, class Add>
void add_up_rows(const View& out, int64_t chunks, int64_t width, Add&& add) {
  const int64_t C = out.shape[1];
  parallel_for(out.shape[0], 1 + kParallelElements / std::max<int64_t>(1, chunks * C),
               [&](int64_t begin, int64_t end) {
                 for (int64_t c = 0; c < C; c += width) {
                   const int64_t n = std::min(width, C - c);
                   for (int64_t o = begin; o < end; ++o) {
                     const int64_t at = o * out.strides[0] + c * out.strides[1];
                     T buffer[kChunk];
                     T* sums = write_run(out, at, out.strides[1], n, buffer);
                     std::fill_n(sums, n, T(0));
                     for (int64_t chunk = 0; chunk < chunks; ++chunk) add(chunk, o, c, n, sums);
                     write_back(out, at, out.strides[1], n, sums);
                   }
                 }
               });
}

}  // namespace mezzo::cpu
