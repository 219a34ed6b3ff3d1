// Pointwise ops, copies, fills and random numbers: one loop over the elements.
#include <array>
#include <utility>

#include "tensor/pointwise_traits.h"
#include "tensor/random_values.h"
#include "tensor/reference/element.h"
#include "tensor/reference/kernel_families.h"

namespace mezzo::reference {

namespace {

/// out[i] = f(in[0][i], in[1][i], ...), computed in T.
template <class T, size_t arity, class F>
void map(const View& out, std::span<const View> in, F f) {
  for (int64_t i = 0; i < out.numel(); ++i) {
    std::array<T, arity> x{};
    for (size_t k = 0; k < arity; ++k) {
      if (in[k].given()) x[k] = load<T>(in[k], offset_of(in[k], i));
    }
    store(out, offset_of(out, i), std::apply(f, x));
  }
}

template <class S>
void value(DType compute, const View& out, std::span<const View> in) {
  dispatch(compute, [&]<class T>(T) {
    if constexpr (std::is_arithmetic_v<T> &&
                  (std::is_floating_point_v<T> || S::result != pointwise::Result::floating)) {
      map<T, S::arity>(out, in, [](auto... x) { return S::value(x...); });
    }
  });
}

/// Slopes and curvatures exist for floating types alone.
template <size_t arity, class F>
void map_floating(DType compute, const View& out, std::span<const View> in, F f) {
  if (compute == float64)
    map<double, arity>(out, in, f);
  else
    map<float, arity>(out, in, f);
}

template <class S, int i>
void slope(DType compute, const View& out, std::span<const View> in) {
  map_floating<S::arity + 1>(compute, out, in,
                             [](auto g, auto... x) { return pointwise::times_slope<S, i>(g, x...); });
}

template <class S, int i, int j>
void curvature(DType compute, const View& out, std::span<const View> in) {
  map_floating<S::arity + 2>(compute, out, in, [](auto h, auto g, auto... x) {
    return pointwise::times_curvature<S, i, j>(h, g, x...);
  });
}

template <class S, int i>
void add_slope(PointwiseKernels& kernels) {
  if constexpr (pointwise::differentiable<S, i>) {
    kernels.slope[i] = &slope<S, i>;
    [&]<size_t... j>(std::index_sequence<j...>) {
      ((kernels.curvature[i][j] = &curvature<S, i, static_cast<int>(j)>), ...);
    }
    (std::make_index_sequence<S::arity>());
  }
}

template <class S>
void add_op(PointwiseKernels& kernels) {
  kernels.value = &value<S>;
  [&]<size_t... i>(std::index_sequence<i...>) { (add_slope<S, static_cast<int>(i)>(kernels), ...); }
  (std::make_index_sequence<S::arity>());
}

/// out[i] = f(i), stored in out's dtype.
template <class F>
void generate(const View& out, F f) {
  for (int64_t i = 0; i < out.numel(); ++i) store(out, offset_of(out, i), f(i));
}

void copy(const View& out, const View& in) {
  dispatch(compute_type(in.dtype), [&]<class T>(T) {
    if constexpr (std::is_arithmetic_v<T>)
      generate(out, [&](int64_t i) { return load<T>(in, offset_of(in, i)); });
  });
}

void fill(const View& out, Scalar value) {
  if (value.dtype() == float64)
    generate(out, [&](int64_t) { return value.to<double>(); });
  else
    generate(out, [&](int64_t) { return value.to<int64_t>(); });
}

void arange(const View& out, Scalar start, Scalar step) {
  if (start.dtype() == float64 || step.dtype() == float64) {
    generate(out, [&](int64_t i) { return start.to<double>() + static_cast<double>(i) * step.to<double>(); });
  } else {
    generate(out, [&](int64_t i) { return start.to<int64_t>() + i * step.to<int64_t>(); });
  }
}

void uniform(const View& out, PhiloxState state, double low, double high) {
  generate(out, [&](int64_t i) { return uniform_value(state, out.dtype, i, low, high); });
}

void normal(const View& out, PhiloxState state, double mean, double std) {
  generate(out, [&](int64_t i) { return normal_value(state, out.dtype, i, mean, std); });
}

}  // namespace

void add_pointwise(Kernels& table) {
  [&]<class... S>(std::tuple<S...>*) {
    (add_op<S>(table.pointwise[pointwise::index<S>]), ...);
  }(static_cast<pointwise::Ops*>(nullptr));
  table.copy = &copy;
  table.fill = &fill;
  table.arange = &arange;
  table.uniform = &uniform;
  table.normal = &normal;
}

}  // namespace mezzo::reference
