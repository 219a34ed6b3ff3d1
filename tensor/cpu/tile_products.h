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

/// Gradients of the weight, one for each chunk of rows, in groups: a thread that makes a group's from the
/// first on adds them up there, while that is in its cache. Whoever made them, those of a group are added in
/// order, and then the groups: the same bits.
template <class T>
class Partials {
 public:
  const int64_t count, group;

  Partials(int64_t count, int64_t size, int64_t group)
      : count(count),
        group(group),
        size_(size),
        memory_(static_cast<size_t>(count * size) * sizeof(T)),
        begun_(static_cast<size_t>(count)) {}
  T* at(int64_t chunk) const { return memory_.as<T>() + chunk * size_; }

  /// The chunk where the gradient of `chunk` is added up, by a thread that has made all chunks from `since`
  /// on.
  int64_t place(int64_t chunk, int64_t since) {
    const int64_t first = chunk / group * group, place = first >= since ? first : chunk;
    begun_[static_cast<size_t>(place)] = true;
    return place;
  }
  bool begun(int64_t chunk) const { return begun_[static_cast<size_t>(chunk)]; }

 private:
  int64_t size_;  ///< elements of one
  Scratch memory_;
  std::vector<char> begun_;  // of threads each its own
};

/// out[o, c] = sum over the partial sums of what add(chunk, o, c, n, sums) adds to sums[n], `width` columns
/// at a time for all rows, as partial sums lie.
template <class T, class Add>
void add_up_rows(const View& out, const Partials<T>& partials, int64_t width, Add&& add) {
  const int64_t C = out.shape[1];
  parallel_for(out.shape[0], 1 + kParallelElements / std::max<int64_t>(1, partials.count * C),
               [&](int64_t begin, int64_t end) {
                 for (int64_t c = 0; c < C; c += width) {
                   const int64_t n = std::min(width, C - c);
                   for (int64_t o = begin; o < end; ++o) {
                     const int64_t at = o * out.strides[0] + c * out.strides[1];
                     T buffer[kChunk];
                     T* sums = write_run(out, at, out.strides[1], n, buffer);
                     std::fill_n(sums, n, T(0));
                     for (int64_t first = 0; first < partials.count; first += partials.group) {
                       const int64_t end = std::min(first + partials.group, partials.count);
                       const bool several = first + 1 < end && partials.begun(end - 1);
                       T of_group[kChunk], *to = several ? of_group : sums;
                       if (several) std::fill_n(to, n, T(0));
                       for (int64_t chunk = first; chunk < end; ++chunk)
                         if (partials.begun(chunk)) add(chunk, o, c, n, to);
                       for (int64_t i = 0; several && i < n; ++i) sums[i] += of_group[i];
                     }
                     write_back(out, at, out.strides[1], n, sums);
                   }
                 }
               });
}

}  // namespace mezzo::cpu
