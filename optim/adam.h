// Adam and AdamW.
#pragma once

#include <optional>

#include "optim/optimizer.h"
#include "tensor/kernels.h"

namespace mezzo::optim {

struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;     ///< decay of the running means of g and g^2
  double eps = 1e-8;                     ///< added to the root, after its bias correction
  std::optional<double> weight_decay{};  ///< none: 0, for AdamW 0.01
  bool amsgrad = false;                  ///< divide by the largest mean of g^2 so far
  bool maximize = false;                 ///< climb instead of descend
};

/// With g the gradient (negated to maximize, + weight_decay p) and t the number of steps of this parameter:
///   m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g^2
///   p = p - lr / (1 - beta1^t) m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
/// Kingma and Ba, "Adam: a method for stochastic optimization" (2015); amsgrad: Reddi et al. (2018), on the
/// uncorrected v as in PyTorch. Moments are float32 for 16-bit parameters. One pass over the memory of all
/// parameters of a group.
class Adam : public UnscalingOptimizer {
 public:
  explicit Adam(std::vector<Tensor> parameters, const AdamOptions& options = {});
  explicit Adam(std::vector<Group<AdamOptions>> groups);
  using UnscalingOptimizer::step;
  void step(const LossScale& loss_scale) override;
  /// The groups; options may be changed between steps.
  std::vector<Group<AdamOptions>>& groups() { return groups_; }

 protected:
  Adam(std::vector<Group<AdamOptions>> groups, bool decoupled_decay);
  void visit_state(StateVisitor& visitor) override;
  double learning_rate(size_t group) const override { return groups_[group].options.lr; }

 private:
  struct State {
    Tensor step;  ///< 0-d int64; undefined: 0
    Tensor exp_avg, exp_avg_sq, max_exp_avg_sq;
  };
  double weight_decay(const AdamOptions& options) const;
  static void allocate(State& state, const Tensor& parameter, const AdamOptions& options);
  static AdamTensors tensors_of(const State& state, const Tensor& parameter, const AdamOptions& options);

  std::vector<Group<AdamOptions>> groups_;
  std::vector<State> states_;  ///< in the order of parameters()
  bool decoupled_decay_;
};

/// Adam whose decay does not pass through the moments: p = p (1 - lr weight_decay) before the update.
/// Loshchilov and Hutter, "Decoupled weight decay regularization" (2019).
class AdamW : public Adam {
 public:
  explicit AdamW(std::vector<Tensor> parameters, const AdamOptions& options = {})
      : AdamW(std::vector<Group<AdamOptions>>{{std::move(parameters), options}}) {}
  explicit AdamW(std::vector<Group<AdamOptions>> groups) : Adam(std::move(groups), true) {}
};

}  // namespace mezzo::optim
