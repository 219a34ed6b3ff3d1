// How a pointwise formula becomes kernels: a body over contiguous runs in one type, and a driver that brings
// any strides and dtypes to it, a chunk at a time. Only bodies are templates, so an op costs little code.
#pragma once

#include <array>
#include <utility>

#include "tensor/cpu/vec.h"
#include "tensor/kernels.h"
#include "tensor/pointwise_traits.h"

namespace mezzo::cpu {

/// out[i] = formula(in[0][i], in[1][i], ...) for n contiguous elements. Operands that the formula does not
/// read point to valid memory all the same.
using Body = void (*)(void* out, const void* const* in, int64_t n);

/// Runs `body`, written for the type `compute`, over the views; `boolean`: the body writes bool.
void run_pointwise(Body body, DType compute, bool boolean, const View& out, std::span<const View> in);

/// The body of a formula over `arity` operands of type T. float and double go through Vec if the formula
/// takes it, the last elements too, so that a value does not depend on its position.
template <class T, int arity, class Formula>
void body(void* out_, const void* const* in_, int64_t n) {
  using Out = decltype([]<size_t... k>(std::index_sequence<k...>) {
    return Formula::apply((static_cast<void>(k), T{})...);
  }(std::make_index_sequence<arity>()));
  auto* out = static_cast<Out*>(out_);
  std::array<const T*, arity> in;
  for (size_t k = 0; k < arity; ++k) in[k] = static_cast<const T*>(in_[k]);
  [&]<size_t... k>(std::index_sequence<k...>) {
    if constexpr (std::is_floating_point_v<T> && !std::is_same_v<Out, bool>) {
      using V = Vec<T>;
      int64_t i = 0;
      for (; i + V::size <= n; i += V::size) Formula::apply(V::load(in[k] + i)...).store(out + i);
      if (i == n) return;
      T rest[arity][V::size] = {}, result[V::size];
      for (int64_t j = i; j < n; ++j) ((rest[k][j - i] = in[k][j]), ...);
      Formula::apply(V::load(rest[k])...).store(result);
      std::copy(result, result + (n - i), out + i);
    } else {
      for (int64_t i = 0; i < n; ++i) out[i] = Formula::apply(in[k][i]...);
    }
  }
  (std::make_index_sequence<arity>());
}

/// The kernel of a formula: picks the body for the compute type.
template <int arity, class Formula, bool floating_only, bool boolean>
void pointwise_kernel(DType compute, const View& out, std::span<const View> in) {
  Body chosen = dispatch(compute, []<class T>(T) -> Body {
    if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>)
      return nullptr;  // never a compute type
    else if constexpr (floating_only && !std::is_floating_point_v<T>)
      return nullptr;
    else
      return &body<T, arity, Formula>;
  });
  run_pointwise(chosen, compute, boolean, out, in);
}

void add_pointwise_values(Kernels& table);     // pointwise.cpp
void add_pointwise_gradients(Kernels& table);  // pointwise_grad.cpp

}  // namespace mezzo::cpu
