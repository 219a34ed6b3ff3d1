// What losses share.
#pragma once

#include "autograd/ops.h"

namespace mezzo::ops {

/// Each loss, their sum or their mean.
inline Tensor reduce(const Tensor& losses, LossReduction reduction) {
  return reduction == LossReduction::none  ? losses
         : reduction == LossReduction::sum ? sum(losses)
                                           : mean(losses);
}

}  // namespace mezzo::ops
