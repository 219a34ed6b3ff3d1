#include "autograd/ops/check.h"

namespace mezzo::ops {

void check_same_dtype(std::string_view op, std::initializer_list<Operand> operands) {
  const Tensor& first = operands.begin()->tensor;
  for (const Operand& operand : operands) {
    if (operand.tensor.defined() && operand.tensor.dtype() != first.dtype()) {
      fail(op,
           text(operand.name, " is ", name_of(operand.tensor.dtype()), " but ", operands.begin()->name,
                " is ", name_of(first.dtype())),
           operands, "convert one with to(dtype)");
    }
  }
}

void check_floating(std::string_view op, std::initializer_list<Operand> operands) {
  check_same_dtype(op, operands);
  if (!is_floating(operands.begin()->tensor.dtype())) fail(op, "needs a floating dtype", operands);
}

}  // namespace mezzo::ops
