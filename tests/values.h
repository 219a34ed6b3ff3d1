// Small tensors with written-out values, on the device under test.
#pragma once

#include <vector>

#include "tensor/tensor.h"
#include "tests/support.h"

namespace mezzo {

using Values = std::vector<double>;

inline Tensor make(const Values& values, const Shape& shape, DType dtype = float64) {
  return tensor(values, shape, {.dtype = dtype, .device = test_device()});
}
/// 1-d.
inline Tensor make(const Values& values, DType dtype = float64) {
  return make(values, {static_cast<int64_t>(values.size())}, dtype);
}
/// 0-d.
inline Tensor scalar(double value, DType dtype = float64) { return make({value}, Shape{}, dtype); }

/// The same as leaves that require grad.
inline Tensor leaf(const Values& values, DType dtype = float64) {
  return make(values, dtype).requires_grad_();
}
inline Tensor leaf(const Values& values, const Shape& shape, DType dtype = float64) {
  return make(values, shape, dtype).requires_grad_();
}

inline Values values(const Tensor& x) { return x.to_vector<double>(); }

}  // namespace mezzo
