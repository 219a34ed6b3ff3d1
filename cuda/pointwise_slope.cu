// Gradients of pointwise ops: a slope of a formula times what comes from above.
#include <tuple>
#include <utility>

#include "cuda/kernel_families.h"
#include "cuda/pointwise.cuh"
#include "tensor/pointwise_traits.h"

namespace mezzo::cuda {

namespace {

/// g * the derivative of S by its operand i.
template <class S, int i>
struct Slope {
  template <class T, class... X>
  static constexpr T apply(T g, X... x) {
    return pointwise::times_slope<S, i>(g, x...);
  }
};

/// Slopes exist for floating types alone.
template <class S, int i>
void slope(DType compute, const View& out, std::span<const View> in) {
  if (compute == float64)
    run_pointwise<Slope<S, i>, double, S::arity + 1, true>(out, in);
  else
    run_pointwise<Slope<S, i>, float, S::arity + 1, true>(out, in);
}

template <class S>
void add_op(PointwiseKernels& kernels) {
  [&]<size_t... i>(std::index_sequence<i...>) {
    const auto add = [&]<int k>() {
      if constexpr (pointwise::differentiable<S, k>) kernels.slope[k] = &slope<S, k>;
    };
    (add.template operator()<static_cast<int>(i)>(), ...);
  }
  (std::make_index_sequence<S::arity>());
}

}  // namespace

void add_pointwise_slopes(Kernels& table) {
  [&]<class... S>(std::tuple<S...>*) {
    (add_op<S>(table.pointwise[pointwise::index<S>]), ...);
  }(static_cast<pointwise::Ops*>(nullptr));
}

}  // namespace mezzo::cuda
