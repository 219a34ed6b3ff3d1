// Stochastic gradient descent.
#pragma once

#include "optim/optimizer.h"

namespace mezzo::optim {

struct SgdOptions {
  double lr = 1e-3;
  double momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false;
  bool maximize = false;  ///< climb instead of descend
};

/// With g the gradient (negated to maximize, + weight_decay p):
///   buf = momentum buf + (1 - dampening) g, the first time buf = g;  g = g + momentum buf if nesterov, else
///   buf p = p - lr g
/// Sutskever et al., "On the importance of initialization and momentum in deep learning" (2013), in PyTorch's
/// form, where lr multiplies the buffer. Buffers are float32 for 16-bit parameters. One pass over the
/// memory of all parameters of a group.
class SGD : public UnscalingOptimizer {
 public:
  explicit SGD(std::vector<Tensor> parameters, const SgdOptions& options = {});
  explicit SGD(std::vector<Group<SgdOptions>> groups);
  using UnscalingOptimizer::step;
  void step(const LossScale& loss_scale) override;
  /// The groups; options may be changed between steps.
  std::vector<Group<SgdOptions>>& groups() { return groups_; }

 protected:
  void visit_state(StateVisitor& visitor) override;
  double learning_rate(size_t group) const override { return groups_[group].options.lr; }

 private:
  /// Undefined before the first step with momentum.
  struct State {
    Tensor momentum_buffer;
    Tensor steps;  ///< 0-d int64: those that the buffer has taken part in
  };
  std::vector<Group<SgdOptions>> groups_;
  std::vector<State> states_;  ///< in the order of parameters()
};

}  // namespace mezzo::optim
