// The kernel under every pointwise op: any formula over operands of any strides and dtypes, with 16-byte
// accesses where memory allows them.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <utility>

#include "cuda/pack.cuh"

namespace mezzo::cuda {

/// An operand as a kernel gets it: memory, or one number (of the CPU's, or none at all), which is `value`.
template <class T>
struct PointwiseOperand {
  const void* data;
  DType dtype;
  T value;
};

/// Operands whose formula runs in T, n of them, beside the output.
template <class T, int n>
struct PointwiseOperands {
  PointwiseOperand<T> in[n];
};

/// The number in the CPU's memory that `view` shows.
template <class T>
T number_of(const View& view) {
  return dispatch(view.dtype, [&]<class E>(E) {
    if constexpr (is_16_bit<E>)
      return static_cast<T>(static_cast<float>(*view.as<E>()));
    else
      return static_cast<T>(*view.as<E>());
  });
}

/// out[i] = f(in[0][i], ...) for views of any strides and dtypes: dtypes are looked at for each element, all
/// threads alike.
template <class F, class T, int n>
__global__ void __launch_bounds__(256)
    pointwise_strided(const __grid_constant__ Walk<n + 1> walk, void* out, DType dtype,
                      const __grid_constant__ PointwiseOperands<T, n> operands) {
  for (int64_t i = first_item(); i < walk.count; i += grid_stride()) {
    int64_t place[n + 1];
    walk.places(i, place);
    T x[n];
    for (int k = 0; k < n; ++k) {
      const PointwiseOperand<T>& operand = operands.in[k];
      x[k] = operand.data ? load<T>(operand.data, operand.dtype, place[k + 1]) : operand.value;
    }
    const auto result = [&]<size_t... k>(std::index_sequence<k...>) { return F::apply(x[k]...); }
    (std::make_index_sequence<n>());
    store(out, dtype, place[0], result);
  }
}

/// out[i] = f(in[0][i], ...) for dense arrays of E, and single numbers. Each byte is read and written once:
/// the limit is the device's memory.
template <class F, class E, int n>
__global__ void __launch_bounds__(256)
    pointwise_packed(int64_t count, E* out,
                     const __grid_constant__ PointwiseOperands<Compute<E>, n> operands) {
  using T = Compute<E>;
  using P = Pack<E>;
  const auto apply = [&](const T(&x)[n]) {
    return [&]<size_t... k>(std::index_sequence<k...>) { return convert_to<E>(F::apply(x[k]...)); }
    (std::make_index_sequence<n>());
  };
  const int64_t packs = count / P::size;
  for (int64_t i = first_item(); i < packs; i += grid_stride()) {
    P in[n], result;
    for (int k = 0; k < n; ++k) {
      if (operands.in[k].data) in[k] = static_cast<const P*>(operands.in[k].data)[i];
    }
    for (int e = 0; e < P::size; ++e) {
      T x[n];
      for (int k = 0; k < n; ++k)
        x[k] = operands.in[k].data ? convert_to<T>(in[k].elements[e]) : operands.in[k].value;
      result.elements[e] = apply(x);
    }
    reinterpret_cast<P*>(out)[i] = result;
  }
  for (int64_t i = packs * P::size + first_item(); i < count; i += grid_stride()) {
    T x[n];
    for (int k = 0; k < n; ++k) {
      x[k] = operands.in[k].data ? convert_to<T>(static_cast<const E*>(operands.in[k].data)[i])
                                 : operands.in[k].value;
    }
    out[i] = apply(x);
  }
}

/// Whether pointwise_packed can do it: the output and the operands in memory are arrays of E, alike in
/// layout.
template <class E, int n>
bool is_packed(const Walk<n + 1>& walk, const View& out, std::span<const View> in) {
  const auto fits = [&](const View& view) { return view.dtype == dtype_of<E> && is_aligned(view.data); };
  if (walk.dims != 1 || walk.strides[0][0] != 1 || !fits(out)) return false;
  for (int k = 0; k < n; ++k) {
    const View& view = in[static_cast<size_t>(k)];
    if (view.given() && !view.on_host && (walk.strides[0][k + 1] != 1 || !fits(view))) return false;
  }
  return true;
}

template <class T, int n>
PointwiseOperands<T, n> operands_of(std::span<const View> in) {
  PointwiseOperands<T, n> operands;
  for (size_t k = 0; k < n; ++k) {
    const View& view = in[k];
    operands.in[k] = {view.on_host ? nullptr : view.data, view.dtype,
                      view.on_host ? number_of<T>(view) : T{}};
  }
  return operands;
}

/// out = F::apply(in...), the formula running in T. `packs` says whether arrays of float and of the 16-bit
/// types get a kernel of their own.
template <class F, class T, int n, bool packs>
void run_pointwise(const View& out, std::span<const View> in) {
  if (out.numel() == 0) return;
  std::array<const View*, n + 1> views{&out};
  for (size_t k = 0; k < n; ++k) views[k + 1] = &in[k];
  const Walk<n + 1> walk(views);
  if constexpr (packs && std::is_same_v<T, float>) {
    const auto packed = [&]<class E>(E) {
      if (!is_packed<E, n>(walk, out, in)) return false;
      launch(pointwise_packed<F, E, n>, grid_for(walk.count / Pack<E>::size), walk.count, out.as<E>(),
             operands_of<T, n>(in));
      return true;
    };
    if (packed(float{}) || packed(Half{}) || packed(BFloat16{})) return;
  }
  launch(pointwise_strided<F, T, n>, grid_for(walk.count), walk, out.data, out.dtype, operands_of<T, n>(in));
}

}  // namespace mezzo::cuda
