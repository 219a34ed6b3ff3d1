#include "tensor/cpu/pointwise_loop.h"

namespace mezzo::cpu {

namespace {

/// g * slope_i(x...)
template <class S, int i>
struct Slope {
  template <class T, class... X>
  static T apply(T g, X... x) {
    return pointwise::times_slope<S, i>(g, x...);
  }
};

/// h * g * d slope_i / d x_j
template <class S, int i, int j>
struct Curvature {
  template <class T, class... X>
  static T apply(T h, T g, X... x) {
    return pointwise::times_curvature<S, i, j>(h, g, x...);
  }
};

template <class S, int i>
void add_slope(PointwiseKernels& kernels) {
  if constexpr (pointwise::differentiable<S, i>) {
    kernels.slope[i] = &pointwise_kernel<S::arity + 1, Slope<S, i>, true, false>;
    [&]<size_t... j>(std::index_sequence<j...>) {
      ((kernels.curvature[i][j] =
            &pointwise_kernel<S::arity + 2, Curvature<S, i, static_cast<int>(j)>, true, false>),
       ...);
    }
    (std::make_index_sequence<S::arity>());
  }
}

template <class S>
void add_slopes(PointwiseKernels& kernels) {
  [&]<size_t... i>(std::index_sequence<i...>) { (add_slope<S, static_cast<int>(i)>(kernels), ...); }
  (std::make_index_sequence<S::arity>());
}

}  // namespace

void add_pointwise_gradients(Kernels& table) {
  [&]<class... S>(std::tuple<S...>*) {
    (add_slopes<S>(table.pointwise[pointwise::index<S>]), ...);
  }(static_cast<pointwise::Ops*>(nullptr));
}

}  // namespace mezzo::cpu
