// Checks that several ops share.
#pragma once

#include <initializer_list>
#include <string_view>

#include "tensor/tensor.h"

namespace mezzo::ops {

/// Whether x is one value in the CPU's memory, which pointwise ops take beside tensors of any device.
bool is_cpu_scalar(const Tensor& x);

/// Throws Error unless the defined operands have one dtype: products do not promote.
void check_same_dtype(std::string_view op, std::initializer_list<Operand> operands);
/// The same, and that dtype must be floating.
void check_floating(std::string_view op, std::initializer_list<Operand> operands);
/// Throws Error naming the first of the integers in `positions`, called `what`, that is outside [low, size),
/// and where it stands.
void check_range(std::string_view op, std::string_view what, const Tensor& positions, int64_t size,
                 std::initializer_list<Operand> operands, int64_t low = 0);

}  // namespace mezzo::ops
