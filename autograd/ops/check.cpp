#include "autograd/ops/check.h"

#include "autograd/ops.h"

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

void check_range(std::string_view op, std::string_view what, const Tensor& positions, int64_t size,
                 std::initializer_list<Operand> operands, int64_t low) {
  if (positions.numel() == 0) return;
  for (const Tensor& extreme : {amin(positions), amax(positions)}) {
    const auto value = extreme.item<int64_t>();
    if (value < low || value >= size)
      fail(op, text(what, " ", value, " is outside [", low, ", ", size, ")"), operands);
  }
}

}  // namespace mezzo::ops
