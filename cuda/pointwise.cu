// Pointwise ops: the values of the formulas in tensor/pointwise.h.
#include "cuda/pointwise.cuh"

#include <tuple>

#include "cuda/kernel_families.h"
#include "tensor/pointwise_traits.h"

namespace mezzo::cuda {

namespace {

/// S itself.
template <class S>
struct Value {
  template <class... T>
  static constexpr auto apply(T... x) {
    return S::value(x...);
  }
};

/// Integers are computed as int64: what is stored wraps as it would in the narrower type.
template <class S>
void value(DType compute, const View& out, std::span<const View> in) {
  constexpr int n = S::arity;
  constexpr bool packs = S::result != pointwise::Result::boolean;
  if (compute == float64) {
    run_pointwise<Value<S>, double, n, packs>(out, in);
  } else if (compute == float32) {
    run_pointwise<Value<S>, float, n, packs>(out, in);
  } else if constexpr (S::result != pointwise::Result::floating) {
    run_pointwise<Value<S>, int64_t, n, packs>(out, in);
  }
}

}  // namespace

void add_pointwise(Kernels& table) {
  [&]<class... S>(std::tuple<S...>*) {
    ((table.pointwise[pointwise::index<S>].value = &value<S>), ...);
  }(static_cast<pointwise::Ops*>(nullptr));
  add_pointwise_slopes(table);
  add_pointwise_curvatures(table);
}

}  // namespace mezzo::cuda
