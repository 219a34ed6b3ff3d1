// Threads of a block dealt to lines of elements: to those that a reduction folds into one, to those of
// softmax.
#pragma once

#include <bit>

#include "cuda/block.cuh"
#include "cuda/loop.cuh"

namespace mezzo::cuda {

/// A block works on `lines` lines at a time, each with `members` threads; both powers of 2.
struct Team {
  unsigned members, lines;
  bool abreast;  ///< neighbouring threads are on neighbouring lines; or else on neighbours within a line

  __device__ unsigned member() const { return abreast ? threadIdx.x / lines : threadIdx.x % members; }
  __device__ unsigned line() const { return abreast ? threadIdx.x % lines : threadIdx.x / members; }

  /// The values of a line's threads, merged in order of `member`, in each of them. All threads of the block,
  /// at most `most`, must call; T has no constructors.
  template <unsigned most, class T, class Merge>
  __device__ T merge(T value, Merge merge) const {
    const unsigned begin = abreast ? lines : 1, end = begin * members;
    unsigned bits = begin;
    for (; bits < end && bits < kWarp; bits *= 2) {
      value = in_order(bits, value, from_lane_across(value, static_cast<int>(bits)), merge);
    }
    if (bits >= end) return value;
    SHARED(T, values, [most]);
    for (; bits < end; bits *= 2) {
      values[threadIdx.x] = value;
      __syncthreads();
      value = in_order(bits, value, values[threadIdx.x ^ bits], merge);
      __syncthreads();
    }
    return value;
  }

 private:
  template <class T, class Merge>
  static __device__ T in_order(unsigned bits, T mine, T other, Merge merge) {
    return (threadIdx.x & bits) != 0 ? merge(other, mine) : merge(mine, other);
  }
};

inline unsigned power_of_2_from(int64_t n, unsigned most) {
  return n >= most ? most : std::bit_ceil(static_cast<unsigned>(std::max<int64_t>(n, 1)));
}

/// The smallest distance between neighbours in view v of a walk; the largest number if it has none.
template <int n>
int64_t smallest_stride(const Walk<n>& walk, int v) {
  int64_t smallest = std::numeric_limits<int64_t>::max();
  for (int d = 0; d < walk.dims; ++d) {
    if (walk.sizes[d] > 1 && walk.strides[d][v] != 0) smallest = std::min(smallest, walk.strides[d][v]);
  }
  return smallest;
}

}  // namespace mezzo::cuda
