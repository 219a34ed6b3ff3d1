// Second gradients of pointwise ops, from the slopes' formulas on dual numbers. Rare: no kernels for packs.
#include <tuple>
#include <utility>

#include "cuda/kernel_families.h"
#include "cuda/pointwise.cuh"
#include "tensor/pointwise_traits.h"

namespace mezzo::cuda {

namespace {

/// h * g * the second derivative of S by its operands i and j.
template <class S, int i, int j>
struct Curvature {
  template <class T, class... X>
  static constexpr T apply(T h, T g, X... x) {
    return pointwise::times_curvature<S, i, j>(h, g, x...);
  }
};

template <class S, int i, int j>
void curvature(DType compute, const View& out, std::span<const View> in) {
  if (compute == float64)
    run_pointwise<Curvature<S, i, j>, double, S::arity + 2, false>(out, in);
  else
    run_pointwise<Curvature<S, i, j>, float, S::arity + 2, false>(out, in);
}

template <class S, int i>
void add_slope(PointwiseKernels& kernels) {
  if constexpr (pointwise::differentiable<S, i>) {
    [&]<size_t... j>(std::index_sequence<j...>) {
      ((kernels.curvature[i][j] = &curvature<S, i, static_cast<int>(j)>), ...);
    }
    (std::make_index_sequence<S::arity>());
  }
}

template <class S>
void add_op(PointwiseKernels& kernels) {
  [&]<size_t... i>(std::index_sequence<i...>) { (add_slope<S, static_cast<int>(i)>(kernels), ...); }
  (std::make_index_sequence<S::arity>());
}

}  // namespace

void add_pointwise_curvatures(Kernels& table) {
  [&]<class... S>(std::tuple<S...>*) {
    (add_op<S>(table.pointwise[pointwise::index<S>]), ...);
  }(static_cast<pointwise::Ops*>(nullptr));
}

}  // namespace mezzo::cuda
