#include "autograd/ops/check.h"

#include "autograd/ops.h"
#include "tensor/backend.h"

namespace mezzo::ops {

bool is_cpu_scalar(const Tensor& x) { return x.shape().empty() && x.device().type == Device::Type::cpu; }

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

void check_range(std::string_view op, std::string_view what, const Tensor& all_positions, int64_t size,
                 std::initializer_list<Operand> operands, int64_t low) {
  if (all_positions.numel() == 0 || is_capturing(all_positions.device())) return;
  Tensor positions = all_positions;  // each of an expanded tensor's once
  for (int d = 0; d < positions.dim(); ++d) {
    if (positions.strides()[d] == 0 && positions.size(d) > 1) positions = positions.narrow(d, 0, 1);
  }
  if (amin(positions).item<int64_t>() >= low && amax(positions).item<int64_t>() < size) return;
  const Tensor all = positions.to(int64), wrong = nonzero(logical_or(lt(all, low), ge(all, size)));
  Tensor first = all;
  const Shape place(wrong.select(0, 0).to_vector<int64_t>());
  for (const int64_t i : place) first = first.select(0, i);
  fail(op,
       text(what, " ", first.item<int64_t>(), place.empty() ? "" : " at " + to_string(place), " is outside [",
            low, ", ", size, ")"),
       operands);
}

}  // namespace mezzo::ops
