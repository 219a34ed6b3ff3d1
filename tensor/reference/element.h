// One element at a time, by index: all that the reference kernels need.
#pragma once

#include <cstdint>

#include "tensor/kernels.h"

namespace mezzo::reference {

/// Position in memory (in elements) of the `linear`-th element in row-major order.
inline int64_t offset_of(const View& view, int64_t linear) {
  int64_t offset = 0;
  for (int d = view.shape.dim() - 1; d >= 0; --d) {
    offset += linear % view.shape[d] * view.strides[d];
    linear /= view.shape[d];
  }
  return offset;
}

/// The element at `offset`, converted to T.
template <class T>
T load(const View& view, int64_t offset) {
  return dispatch(view.dtype, [&]<class E>(E) {
    const E value = static_cast<const E*>(view.data)[offset];
    if constexpr (std::is_same_v<E, Half> || std::is_same_v<E, BFloat16>)
      return static_cast<T>(static_cast<float>(value));
    else
      return static_cast<T>(value);
  });
}

/// Stores `value` at `offset`, converted to the view's dtype, rounded once.
template <class T>
void store(const View& view, int64_t offset, T value) {
  dispatch(view.dtype, [&]<class E>(E) {
    E* data = static_cast<E*>(view.data);
    if constexpr (std::is_same_v<E, Half> || std::is_same_v<E, BFloat16>)
      data[offset] = E(static_cast<float>(value));
    else
      data[offset] = static_cast<E>(value);
  });
}

/// Element i of a view, in row-major order, as a double.
inline double get(const View& view, int64_t i) { return load<double>(view, offset_of(view, i)); }
/// The same, or `otherwise` of a view that is not given.
inline double value_or(const View& view, int64_t i, double otherwise) {
  return view.given() ? get(view, i) : otherwise;
}
inline void set(const View& view, int64_t i, double value) { store(view, offset_of(view, i), value); }

}  // namespace mezzo::reference
