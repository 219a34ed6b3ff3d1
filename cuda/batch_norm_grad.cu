// Batch normalisation backward, alone and with a residual and ReLU: a pass over memory for the two sums of
// each channel and one for the gradient of the input. Each reads the gradient, the input where it needs it,
// and the output of a ReLU where it is given.
#include "cuda/batch_norm.cuh"
#include "cuda/batch_norm.h"
#include "cuda/channel_sums.cuh"
#include "cuda/kernel_families.h"

namespace mezzo::cuda {
namespace {

enum : int { kInput, kGradOut, kOut, kGradInput, kGradResidual };
using Views = Channels<5>;

/// The gradients g that pass a thread's piece of the relu, and x - mean of its inputs.
template <class A>
struct Passed {
  using T = typename A::T;
  T g[A::width], centred[A::width] = {};

  /// `reads_input`: the caller needs `centred`.
  __device__ Passed(const Views& views, const int64_t (&place)[5], const NormNumbers<A>& normalised,
                    bool relu, bool reads_input) {
    views.read<A>(g, kGradOut, place);
    T x[A::width] = {};
    if (reads_input || (relu && !views.given(kOut))) views.read<A>(x, kInput, place);
    if (relu) {
      T out[A::width];
      if (views.given(kOut)) {
        views.read<A>(out, kOut, place);
      } else {
        for (int i = 0; i < A::width; ++i) out[i] = normalised(x[i], i);
      }
      for (int i = 0; i < A::width; ++i) g[i] = out[i] <= 0 ? 0 : g[i];  // NaN passes
    }
    for (int i = 0; i < A::width; ++i) centred[i] = x[i] - normalised.mean[A::channel(i)];
  }
};

/// The two sums of each channel, over the part of a block.
template <class A>
__global__ void add_up(Views views, Norm norm, GradientSums<typename A::T>* partial) {
  using T = typename A::T;
  const NormNumbers<A> normalised(norm, views.template first_channel<A>());
  GradientSums<T> sums[A::width] = {};
  views.for_rows([&](const auto& place) {
    const Passed<A> passed(views, place, normalised, norm.relu, true);
    for (int i = 0; i < A::width; ++i) sums[i].merge({passed.g[i], passed.g[i] * passed.centred[i]});
  });
  store_partial<A>(partial, views, sums);
}

/// The gradients of weight and bias; `totals` keeps them unrounded for the second pass.
template <class T>
struct StoreSums {
  PerChannel grad_weight, grad_bias, invstd;
  GradientSums<T>* totals;

  __device__ void operator()(int64_t c, GradientSums<T> sums) const {
    sums.products *= invstd.get<T>(c, 1);  // of g * (x - mean) until here
    grad_weight.set(c, sums.products);
    grad_bias.set(c, sums.g);
    totals[c] = sums;
  }
};

/// grad_residual = g and grad_input = weight * invstd * (g - (sum of g + xhat * sum of g * xhat) / n), where
/// the sums came through batch statistics; without `totals` they did not.
template <class A>
__global__ void pass_on(Views views, Norm norm, const GradientSums<typename A::T>* totals) {
  using T = typename A::T;
  const int64_t first = views.template first_channel<A>();
  const NormNumbers<A> normalised(norm, first);
  T base[A::channels] = {}, slope[A::channels] = {};
  if (totals) {
    const T n = static_cast<T>(views.per_channel);
    for (int i = 0; i < A::channels; ++i) {
      base[i] = totals[first + i].g / n;
      slope[i] = totals[first + i].products / n * norm.invstd.get<T>(first + i, 1);
    }
  }
  views.for_rows([&](const auto& place) {
    const Passed<A> passed(views, place, normalised, norm.relu, totals != nullptr);
    if (views.given(kGradResidual)) views.template write<A>(passed.g, kGradResidual, place);
    if (!views.given(kGradInput)) return;
    T grad_input[A::width];
    for (int i = 0; i < A::width; ++i) {
      const int c = A::channel(i);
      const T through_statistics = totals ? base[c] + passed.centred[i] * slope[c] : 0;
      grad_input[i] = normalised.scale[c] * (passed.g[i] - through_statistics);
    }
    views.template write<A>(grad_input, kGradInput, place);
  });
}

/// Both entries of the table: the sums, then what they are needed for.
void gradients(const std::array<View, 5>& operands, const View& grad_weight, const View& grad_bias,
               const Norm& norm, bool batch_statistics) {
  const Views views(operands);
  if (views.channels == 0) return;
  views.with_access([&]<class A>(A) {
    using T = typename A::T;
    const Grid grid = views.grid();
    const Partial<GradientSums<T>> partial(grid.blocks.y, views.channels);
    const Scratch totals(static_cast<size_t>(views.channels) * sizeof(GradientSums<T>));
    launch(add_up<A>, grid, views, norm, partial.data());
    // Of no rows the sums are 0, and invstd is NaN.
    const PerChannel invstd = views.per_channel == 0 ? PerChannel(View()) : norm.invstd;
    partial.merge(StoreSums<T>{grad_weight, grad_bias, invstd, totals.as<GradientSums<T>>()});
    const bool to_write = operands[kGradInput].given() || operands[kGradResidual].given();
    if (!to_write || views.per_channel == 0) return;
    launch(pass_on<A>, grid, views, norm, batch_statistics ? totals.as<GradientSums<T>>() : nullptr);
  });
}

void batch_norm_grad(const View& grad_input, const View& grad_weight, const View& grad_bias,
                     const View& grad_out, const View& input, const View& mean, const View& invstd,
                     const View& weight, bool batch_statistics) {
  gradients({input, grad_out, {}, grad_input, {}}, grad_weight, grad_bias,
            {mean, invstd, weight, View(), false}, batch_statistics);
}

}  // namespace

void batch_norm_relu_grad(const View& grad_input, const View& grad_weight, const View& grad_bias,
                          const View& grad_residual, const View& grad_out, const View& out, const View& input,
                          const View& mean, const View& invstd, const View& weight, const View& bias,
                          bool batch_statistics) {
  gradients({input, grad_out, out, grad_input, grad_residual}, grad_weight, grad_bias,
            {mean, invstd, weight, bias, true}, batch_statistics);
}

void add_batch_norm_grad(Kernels& table) {
  table.batch_norm_grad = batch_norm_grad;
  table.batch_norm_relu_grad = batch_norm_relu_grad;
}

}  // namespace mezzo::cuda
