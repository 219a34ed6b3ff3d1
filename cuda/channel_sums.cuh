// What a channel's values add up to: each block merges what its threads found, a second kernel what the
// blocks found, both in a fixed order. A Sum is a plain struct; its value of zeros stands for no values.
#pragma once

#include "cuda/channels.cuh"

namespace mezzo::cuda {

/// What weight and bias get as gradients: sums of g * xhat and of g.
template <class T>
struct GradientSums {
  T g, products;

  __device__ void merge(const GradientSums& more) {
    g += more.g;
    products += more.products;
  }
};

/// Merges what the threads of a column found in their rows, by halves of the block; the result is that of
/// threadIdx.y = 0. All threads must call.
template <int count, class Sum>
__device__ void merge_down(Sum (&sums)[count]) {
  SHARED(Sum, all, [count][256]);
  const unsigned me = threadIdx.y * blockDim.x + threadIdx.x;
  for (int i = 0; i < count; ++i) all[i][me] = sums[i];
  for (unsigned half = blockDim.y / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.y >= half) continue;
    for (int i = 0; i < count; ++i) {
      sums[i].merge(all[i][me + half * blockDim.x]);
      all[i][me] = sums[i];
    }
  }
}

/// partial[blockIdx.y][channel] = the block's result, of a Sum for each element of the threads' packs.
template <class A, int n, class Sum>
__device__ void store_partial(Sum* partial, const Channels<n>& views, Sum (&sums)[A::width]) {
  Sum merged[A::channels];
  for (int i = 0; i < A::width; ++i) {
    if (i < A::channels)
      merged[i] = sums[i];
    else
      merged[0].merge(sums[i]);
  }
  merge_down(merged);
  if (threadIdx.y != 0 || views.column() >= views.columns) return;
  const int64_t first = blockIdx.y * views.channels + views.template first_channel<A>();
  for (int i = 0; i < A::channels; ++i) partial[first + i] = merged[i];
}

/// finish(channel, its Sum over all slices); a block has 8 channels.
template <class Sum, class Finish>
__global__ void merge_slices(const Sum* partial, int slices, int64_t channels, Finish finish) {
  const int64_t c = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  Sum sum[1] = {};
  if (c < channels) {
    for (unsigned slice = threadIdx.y; slice < static_cast<unsigned>(slices); slice += blockDim.y)
      sum[0].merge(partial[slice * channels + c]);
  }
  merge_down(sum);
  if (threadIdx.y == 0 && c < channels) finish(c, sum[0]);
}

/// Space for the results of a grid's slices, and the second kernel over them.
template <class Sum>
class Partial {
 public:
  Partial(unsigned slices, int64_t channels)
      : slices_(slices), channels_(channels), memory_(slices * static_cast<size_t>(channels) * sizeof(Sum)) {}

  Sum* data() const { return memory_.as<Sum>(); }
  template <class Finish>
  void merge(const Finish& finish) const {
    const dim3 threads(8, 32), blocks(static_cast<unsigned>(divide_up(channels_, threads.x)));
    launch(merge_slices<Sum, Finish>, {blocks, threads}, data(), slices_, channels_, finish);
  }

 private:
  unsigned slices_;
  int64_t channels_;
  Scratch memory_;
};

}  // namespace mezzo::cuda
