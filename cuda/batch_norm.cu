// Batch normalisation forward, alone and with a residual and ReLU: a pass over memory for the statistics,
// which reads each value once, and one that reads each again and writes the result.
#include "cuda/batch_norm.h"

#include <limits>

#include "cuda/batch_norm.cuh"
#include "cuda/channel_sums.cuh"
#include "cuda/kernel_families.h"

namespace mezzo::cuda {
namespace {

// --- statistics

/// Of n values their mean and m2, the sum of squared deviations from it. Sums of squares would lose the
/// variance beside a large mean.
template <class T>
struct Moments {
  T n, mean, m2;

  /// Chan, Golub, LeVeque (1979), "Updating formulae and a pairwise algorithm for computing sample
  /// variances".
  __device__ void merge(const Moments& more) {
    if (more.n == 0) return;
    const T total = n + more.n, share = more.n / total, delta = more.mean - mean;
    mean += delta * share;
    m2 += more.m2 + delta * delta * n * share;
    n = total;
  }
};

/// What moments are taken from, for a channel: its first value, if that is finite. Of values close together,
/// a difference is exact, where a running mean beside a large one has no digits left.
template <class T>
__device__ T origin_of(const PerChannel& first, int64_t c) {
  const T x = first.get<T>(c, 0);
  return x - x == 0 ? x : 0;
}

/// Takes value after value into the moments of each element of a thread's packs. Welford (1962), "Note on a
/// method for calculating corrected sums of squares and products".
template <class A>
__global__ void find_moments(Channels<1> input, PerChannel first, Moments<typename A::T>* partial) {
  using T = typename A::T;
  T n = 0, mean[A::width] = {}, m2[A::width] = {}, origin[A::width] = {};
  if (input.column() < input.columns && input.per_channel > 0) {
    const int64_t c = input.template first_channel<A>();
    for (int i = 0; i < A::width; ++i) origin[i] = origin_of<T>(first, i < A::channels ? c + i : c);
  }
  input.for_rows([&](const auto& place) {
    T x[A::width];
    input.template read<A>(x, 0, place);
    n += 1;
    const T share = 1 / n;
    for (int i = 0; i < A::width; ++i) {
      const T from_origin = x[i] - origin[i], delta = from_origin - mean[i];
      mean[i] += delta * share;
      m2[i] += delta * (from_origin - mean[i]);
    }
  });
  Moments<T> moments[A::width];
  for (int i = 0; i < A::width; ++i) moments[i] = {n, mean[i], m2[i]};
  store_partial<A>(partial, input, moments);
}

/// What is kept of a channel's moments.
struct StoreStatistics {
  PerChannel mean, var, first;

  template <class T>
  __device__ void operator()(int64_t c, const Moments<T>& moments) const {
    const T origin = moments.n > 0 ? origin_of<T>(first, c) : std::numeric_limits<T>::quiet_NaN();
    mean.set(c, origin + moments.mean);
    var.set(c, moments.m2 / moments.n);
  }
};

}  // namespace

void batch_norm_statistics(const View& mean, const View& var, const View& input) {
  const Channels<1> channels({input});
  if (channels.channels == 0) return;
  const PerChannel first(View{input.data, input.dtype, {channels.channels}, {input.strides[1]}});
  channels.with_access([&]<class A>(A) {
    const Grid grid = channels.grid();
    const Partial<Moments<typename A::T>> partial(grid.blocks.y, channels.channels);
    launch(find_moments<A>, grid, channels, first, partial.data());
    partial.merge(StoreStatistics{mean, var, first});
  });
}

// --- normalisation

namespace {

enum : int { kOut, kInput, kResidual };

/// out = (input - mean) * invstd * weight + bias + residual, or the larger of that and 0.
template <class A>
__global__ void normalise(Channels<3> views, Norm norm) {
  using T = typename A::T;
  const NormNumbers<A> normalised(norm, views.template first_channel<A>());
  views.for_rows([&](const auto& place) {
    T values[A::width], residual[A::width] = {};
    views.template read<A>(values, kInput, place);
    if (views.given(kResidual)) views.template read<A>(residual, kResidual, place);
    for (int i = 0; i < A::width; ++i) {
      const T y = normalised(values[i], i) + residual[i];
      values[i] = norm.relu && y < 0 ? 0 : y;  // NaN stays
    }
    views.template write<A>(values, kOut, place);
  });
}

/// Reads input and residual once, and writes the result once.
void normalise(const View& out, const View& input, const View& residual, const Norm& norm) {
  if (out.numel() == 0) return;
  const Channels<3> channels({out, input, residual});
  channels.with_access([&]<class A>(A) { launch(normalise<A>, channels.grid(), channels, norm); });
}

void batch_norm(const View& out, const View& input, const View& mean, const View& invstd, const View& weight,
                const View& bias) {
  normalise(out, input, {}, {mean, invstd, weight, bias, false});
}

}  // namespace

void batch_norm_relu(const View& out, const View& input, const View& mean, const View& invstd,
                     const View& weight, const View& bias, const View& residual) {
  normalise(out, input, residual, {mean, invstd, weight, bias, true});
}

void add_batch_norm(Kernels& table) {
  table.batch_norm_statistics = batch_norm_statistics;
  table.batch_norm = batch_norm;
  table.batch_norm_relu = batch_norm_relu;
  add_batch_norm_grad(table);
}

}  // namespace mezzo::cuda
