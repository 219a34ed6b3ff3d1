// Merging what the threads of a warp, a block or a column of threads hold into one value, in a fixed order:
// results are the same in every run.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "cuda/launch.cuh"

namespace mezzo::cuda {

/// What to merge with: merge(a, b) of two values, `a` being that of the threads in front. A kernel may hand
/// over a lambda or a struct of its own.
struct Plus {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
/// The larger, and NaN if there is one.
struct Larger {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return b > a || b != b ? b : a;
  }
};

/// `value` of the lane whose number differs in the bits of `bits`; T may be a struct.
template <class T>
__device__ T from_lane_across(T value, int bits) {
  static_assert(std::is_trivially_copyable_v<T>);
  uint32_t words[(sizeof(T) + 3) / 4] = {};
  memcpy(words, &value, sizeof(T));
  for (uint32_t& word : words) word = __shfl_xor_sync(0xffffffffu, word, bits);
  memcpy(&value, words, sizeof(T));
  return value;
}

/// The values of each group of `width` neighbouring lanes (a power of 2), merged, in every lane of it. All
/// lanes of the warp must call.
template <int width = 32, class T, class Merge>
__device__ T warp_reduce(T value, Merge merge) {
  const unsigned lane = threadIdx.x % kWarp;
#pragma unroll
  for (int bits = 1; bits < width; bits *= 2) {
    const T other = from_lane_across(value, bits);
    value = (lane & static_cast<unsigned>(bits)) != 0 ? merge(other, value) : merge(value, other);
  }
  return value;
}

/// The values of a block of one dimension, merged, in every thread. All threads must call; T has no
/// constructors.
template <class T, class Merge>
__device__ T block_reduce(T value, Merge merge) {
  SHARED(T, warps, [32]);
  value = warp_reduce(value, merge);
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = value;
  __syncthreads();
  value = warps[0];
  for (unsigned warp = 1; warp < blockDim.x / kWarp; ++warp) value = merge(value, warps[warp]);
  __syncthreads();  // the next call may write
  return value;
}

/// In a block of width x height threads (height a power of 2): the values of those that share threadIdx.x,
/// merged in order of threadIdx.y, in each of them. All threads must call; T has no constructors.
template <int width, int height, class T, class Merge>
__device__ T column_reduce(T value, Merge merge) {
  SHARED(T, column, [height][width]);
  const unsigned x = threadIdx.x, y = threadIdx.y;
  column[y][x] = value;
  __syncthreads();
#pragma unroll
  for (unsigned step = 1; step < height; step *= 2) {
    if (y % (2 * step) == 0) column[y][x] = merge(column[y][x], column[y + step][x]);
    __syncthreads();
  }
  value = column[0][x];
  __syncthreads();  // the next call may write
  return value;
}

template <int width = 32, class T>
__device__ T warp_sum(T value) {
  return warp_reduce<width>(value, Plus());
}
template <int width = 32, class T>
__device__ T warp_max(T value) {
  return warp_reduce<width>(value, Larger());
}
template <class T>
__device__ T block_sum(T value) {
  return block_reduce(value, Plus());
}
template <class T>
__device__ T block_max(T value) {
  return block_reduce(value, Larger());
}

}  // namespace mezzo::cuda
