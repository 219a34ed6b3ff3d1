// Numbers per channel, for the kernels that normalise.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tensor/cpu/runs.h"

namespace mezzo::cpu {

/// One number per channel, as T.
template <class T>
std::vector<T> per_channel(const View& view, int64_t channels, T otherwise) {
  std::vector<T> values(static_cast<size_t>(channels), otherwise);
  if (view.given()) load_run(values.data(), address(view, 0), view.dtype, view.strides[0], channels);
  return values;
}

inline void store_per_channel(const View& view, std::span<const double> values) {
  store_run(address(view, 0), view.dtype, view.strides[0], values.data(),
            static_cast<int64_t>(values.size()));
}

/// A normalisation's numbers per channel, with scale = invstd * weight; what is not given stands for 0, or 1
/// as a factor.
template <class T>
struct NormNumbers {
  std::vector<T> mean, invstd, scale, bias;

  NormNumbers(int64_t channels, const View& mean, const View& invstd, const View& weight, const View& bias)
      : mean(per_channel<T>(mean, channels, 0)),
        invstd(per_channel<T>(invstd, channels, 1)),
        scale(per_channel<T>(weight, channels, 1)),
        bias(per_channel<T>(bias, channels, 0)) {
    for (size_t c = 0; c < scale.size(); ++c) scale[c] *= this->invstd[c];
  }
};

/// Two sums per channel: side by side for some channels or for all.
struct Pair {
  double *first, *second;
};

/// Merges the mean and squared deviations of n_b rows into those of n_a rows. Chan, Golub, LeVeque (1979).
inline void merge_moments(Pair a, double n_a, Pair b, double n_b, int64_t channels) {
  const double share = n_b / (n_a + n_b);
  for (int64_t c = 0; c < channels; ++c) {
    const double delta = b.first[c] - a.first[c];
    a.first[c] += delta * share;
    a.second[c] += b.second[c] + delta * delta * n_a * share;
  }
}

}  // namespace mezzo::cpu
