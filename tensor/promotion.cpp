// Type promotion: which dtype an op on several operands has.
#include <algorithm>

#include "tensor/tensor_impl.h"

namespace mezzo {

namespace {

/// bool < integer < floating.
int category(DType dtype) { return is_floating(dtype) ? 2 : is_integral(dtype) ? 1 : 0; }

}  // namespace

DType promote(DType a, DType b) {
  if (a == b) return a;
  if (category(a) != category(b)) return category(a) > category(b) ? a : b;
  if (is_half(a) && is_half(b)) return DType::float32;  // neither 16-bit type holds the other
  return std::min(a, b);  // the enum lists the wider ones first within a category
}

DType promote(std::span<const Tensor> operands) {
  // Priority classes: tensors with dimensions, 0-d tensors, numbers.
  constexpr int kClasses = 3;
  std::optional<DType> found[kClasses];
  for (const Tensor& operand : operands) {
    if (!operand.defined()) continue;
    const TensorImpl& impl = *operand.impl();
    const int priority = impl.is_number ? 2 : impl.shape.dim() == 0 ? 1 : 0;
    DType dtype = impl.dtype;
    if (impl.is_number && is_floating(dtype)) dtype = DType::float32;
    found[priority] = found[priority] ? promote(*found[priority], dtype) : dtype;
  }
  std::optional<DType> result;
  for (const auto& dtype : found) {
    if (dtype && (!result || category(*dtype) > category(*result))) result = dtype;
  }
  return result.value_or(DType::float32);
}

}  // namespace mezzo
