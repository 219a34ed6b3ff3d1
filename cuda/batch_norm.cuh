// What batch normalisation knows of the channels, forward and backward.
#pragma once

#include "cuda/channels.cuh"

namespace mezzo::cuda {

/// y = (x - mean) * invstd * weight + bias, and if `relu` the larger of that and 0.
struct Norm {
  PerChannel mean, invstd, weight, bias;
  bool relu;
};

/// The numbers of a thread's channels, with scale = invstd * weight. The mean is subtracted, not hidden in
/// the bias: beside a large one the differences of the values would be lost.
template <class A>
struct NormNumbers {
  using T = typename A::T;
  T mean[A::channels], scale[A::channels], bias[A::channels];

  __device__ NormNumbers(const Norm& norm, int64_t first_channel) {
    for (int i = 0; i < A::channels; ++i) {
      const int64_t c = first_channel + i;
      mean[i] = norm.mean.get<T>(c, 0);
      scale[i] = norm.invstd.get<T>(c, 1) * norm.weight.get<T>(c, 1);
      bias[i] = norm.bias.get<T>(c, 0);
    }
  }
  /// y of element i of a pack, before the relu.
  __device__ T operator()(T x, int i) const {
    const int c = A::channel(i);
    return (x - mean[c]) * scale[c] + bias[c];
  }
};

}  // namespace mezzo::cuda
