// The 16-bit cast of a weight that stays with it, so that it is made once per change of the weight. Here is
// its keeping: amp/weight_cast.h makes it, an optimizer writes it along with the weight.
#pragma once

#include "tensor/tensor.h"

namespace mezzo {

/// The kept cast to `dtype` of the weight as it is; undefined if there is none. Any number of threads may ask
/// and keep at once.
Tensor kept_cast(const Tensor& weight, DType dtype);
/// `data` is from now on the cast of the weight as it is.
void keep_cast(const Tensor& weight, const Tensor& data);
/// For who is about to change the weight: the kept cast, laid out like the weight, if nobody else holds it.
/// Once both are written, keep_cast. Undefined if there is none, and in a capture, which makes its casts anew
/// at each replay.
Tensor cast_to_write(const Tensor& weight);

}  // namespace mezzo
