// Losses as modules.
#pragma once

#include "autograd/ops.h"
#include "nn/module.h"

namespace mezzo::nn {

/// mean (or sum, or each) of (input - target)^2
class MSELoss : public Module {
 public:
  explicit MSELoss(LossReduction reduction = LossReduction::mean) : reduction_(reduction) {}
  Tensor operator()(const Tensor& input, const Tensor& target) const {
    return mse_loss(input, target, reduction_);
  }

 private:
  LossReduction reduction_;
};

}  // namespace mezzo::nn
