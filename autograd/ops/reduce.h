// What reductions share.
#pragma once

#include <bitset>
#include <string_view>

#include "tensor/tensor.h"

namespace mezzo::ops {

/// Throws Error for a dim that x does not have or that is named twice.
void check_dims(std::string_view op, const Tensor& x, const Dims& dims);
/// For each dimension whether it goes (dims empty: all).
std::bitset<Shape::max_dims> reduced_dims(const Shape& shape, const Dims& dims);
/// `shape` without the dims that go, or with size 1 in their place.
Shape reduced_shape(const Shape& shape, const Dims& dims, bool keepdim);

/// x as a reduction of `dtype` reads it: converted first if that is computed in another type.
inline Tensor computed_as(const Tensor& x, DType dtype) {
  return compute_type(x.dtype()) == compute_type(dtype) ? x : x.to(dtype);
}

}  // namespace mezzo::ops
