// The gradient of a 1x1 convolution's result where its mean and variance have gradients too. Reads what it is
// made of once, and writes it once.
#include "cuda/conv1x1.h"

#include <optional>

#include "cuda/channel_sums.cuh"

namespace mezzo::cuda {
namespace {

enum : int { kTotal, kGradOut, kOut };

/// total = grad_out + grad_mean / n + grad_var * 2 (out - mean) / n, and its sums, unless `partial` is null.
template <class A>
__global__ void add_statistics(Channels<3> views, PerChannel grad_mean, PerChannel grad_var, PerChannel mean,
                               GradientSums<typename A::T>* partial) {
  using T = typename A::T;
  T offset[A::channels], slope[A::channels], center[A::channels];
  const T pixels = static_cast<T>(views.per_channel);
  for (int i = 0; i < A::channels; ++i) {
    const int64_t c = views.template first_channel<A>() + i;
    offset[i] = grad_mean.get<T>(c, 0) / pixels;
    slope[i] = grad_var.get<T>(c, 0) * 2 / pixels;
    center[i] = mean.get<T>(c, 0);
  }
  GradientSums<T> sums[A::width] = {};
  views.for_rows([&](const auto& place) {
    T total[A::width] = {}, out[A::width] = {};
    if (views.given(kGradOut)) views.template read<A>(total, kGradOut, place);
    if (grad_var.data) views.template read<A>(out, kOut, place);
    for (int i = 0; i < A::width; ++i) {
      const int c = A::channel(i);
      total[i] += offset[c] + (grad_var.data ? slope[c] * (out[i] - center[c]) : T(0));
      sums[i].merge({total[i], 0});
    }
    views.template write<A>(total, kTotal, place);
  });
  if (partial) store_partial<A>(partial, views, sums);
}

/// What is kept of a channel's sums.
struct StoreSum {
  PerChannel sums;

  template <class T>
  __device__ void operator()(int64_t c, const GradientSums<T>& sum) const {
    sums.set(c, sum.g);
  }
};

}  // namespace

void add_statistics_grad(const View& total, const View& sums, const View& grad_out, const View& grad_mean,
                         const View& grad_var, const View& out, const View& mean) {
  const Channels<3> views({total, grad_out, out});
  if (views.channels == 0) return;
  views.with_access([&]<class A>(A) {
    using Sums = GradientSums<typename A::T>;
    const Grid grid = views.grid();
    std::optional<Partial<Sums>> partial;
    if (sums.given()) partial.emplace(grid.blocks.y, views.channels);
    launch(add_statistics<A>, grid, views, grad_mean, grad_var, mean, partial ? partial->data() : nullptr);
    if (partial) partial->merge(StoreSum{sums});
  });
}

}  // namespace mezzo::cuda
