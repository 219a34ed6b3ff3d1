// Limits on gradients, applied between backward and step.
#pragma once

#include <vector>

#include "tensor/tensor.h"

namespace mezzo::optim {

/// Multiplies all gradients by min(1, max_norm / (total + 1e-6)), in place, where total is the norm of all of
/// them as one vector, (sum |g|^norm_type)^(1 / norm_type), or the largest |g| for infinity. Returns total
/// (0-d) as it was before. An infinite total makes gradients 0 (infinite ones NaN), a NaN makes all NaN;
/// `error_if_nonfinite` throws Error instead and changes nothing. Throws for a negative max_norm and a
/// norm_type that is not positive.
Tensor clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm, double norm_type = 2,
                       bool error_if_nonfinite = false);

/// Limits each element of the gradients to [-clip_value, clip_value], in place; NaN stays. Throws Error for a
/// negative clip_value.
void clip_grad_value_(const std::vector<Tensor>& parameters, double clip_value);

}  // namespace mezzo::optim
