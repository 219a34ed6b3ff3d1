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

/// mean (or sum, or each) of |input - target|
class L1Loss : public Module {
 public:
  explicit L1Loss(LossReduction reduction = LossReduction::mean) : reduction_(reduction) {}
  Tensor operator()(const Tensor& input, const Tensor& target) const {
    return l1_loss(input, target, reduction_);
  }

 private:
  LossReduction reduction_;
};

/// -input[target] of log-probabilities [N, C, ...]; `weight` has an element for each class.
class NLLLoss : public Module {
 public:
  explicit NLLLoss(const Tensor& weight = {}, const NllLossOptions& options = {})
      : weight(add_buffer("weight", weight)), options_(options) {}
  Tensor operator()(const Tensor& input, const Tensor& target) const {
    return nll_loss(input, target, weight, options_);
  }

  Tensor weight;  ///< undefined: 1 for each class

 private:
  NllLossOptions options_;
};

/// NLLLoss of log_softmax of logits [N, C, ...]; the target may hold probabilities.
class CrossEntropyLoss : public Module {
 public:
  explicit CrossEntropyLoss(const Tensor& weight = {}, const CrossEntropyOptions& options = {})
      : weight(add_buffer("weight", weight)), options_(options) {}
  Tensor operator()(const Tensor& input, const Tensor& target) const {
    return cross_entropy(input, target, weight, options_);
  }

  Tensor weight;  ///< undefined: 1 for each class

 private:
  CrossEntropyOptions options_;
};

/// -target log(input) - (1 - target) log(1 - input) of probabilities; `weight` broadcasts to the input.
class BCELoss : public Module {
 public:
  explicit BCELoss(const Tensor& weight = {}, LossReduction reduction = LossReduction::mean)
      : weight(add_buffer("weight", weight)), reduction_(reduction) {}
  Tensor operator()(const Tensor& input, const Tensor& target) const {
    return binary_cross_entropy(input, target, weight, reduction_);
  }

  Tensor weight;  ///< undefined: 1

 private:
  LossReduction reduction_;
};

/// BCELoss of sigmoid(input), exact for large logits; `pos_weight` multiplies the part of the target.
class BCEWithLogitsLoss : public Module {
 public:
  explicit BCEWithLogitsLoss(const Tensor& weight = {}, const Tensor& pos_weight = {},
                             LossReduction reduction = LossReduction::mean)
      : weight(add_buffer("weight", weight)),
        pos_weight(add_buffer("pos_weight", pos_weight)),
        reduction_(reduction) {}
  Tensor operator()(const Tensor& input, const Tensor& target) const {
    return binary_cross_entropy_with_logits(input, target, weight, pos_weight, reduction_);
  }

  Tensor weight, pos_weight;  ///< undefined: 1

 private:
  LossReduction reduction_;
};

}  // namespace mezzo::nn
