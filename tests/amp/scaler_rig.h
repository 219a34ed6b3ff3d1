// A scaler over parameters with given gradients.
#pragma once

#include <functional>
#include <memory>

#include "amp/grad_scaler.h"
#include "autograd/grad_mode.h"
#include "autograd/ops.h"
#include "optim/sgd.h"
#include "tests/values.h"

namespace mezzo {

/// SGD as a user writes it: it knows nothing of loss scaling.
struct UsersSgd : optim::Optimizer {
  explicit UsersSgd(std::vector<Tensor> parameters, double lr = 1)
      : Optimizer(std::move(parameters)), lr(lr) {}
  void step() override {
    const NoGradGuard guard;
    ++steps;
    for (Tensor p : parameters()) {
      if (p.grad().defined()) p.sub_(p.grad() * lr);
    }
  }
  double lr;
  int steps = 0;
};

/// Parameters that are 1, with these gradients.
inline std::vector<Tensor> with_gradients(const Values& gradients, DType dtype = float32) {
  std::vector<Tensor> parameters;
  for (double gradient : gradients) {
    parameters.push_back(leaf({1}, dtype));
    parameters.back().set_grad(make({gradient}, dtype));
  }
  return parameters;
}

inline Values values(const std::vector<Tensor>& all) {
  Values joined;
  for (const Tensor& x : all) joined.push_back(values(x).at(0));
  return joined;
}
inline Values gradients(const std::vector<Tensor>& parameters) {
  std::vector<Tensor> all;
  for (const Tensor& p : parameters) all.push_back(p.grad());
  return values(all);
}

/// An optimizer of this learning rate: SGD, which unscales by itself, or a user's, which does not.
inline std::unique_ptr<optim::Optimizer> make_sgd(bool by_itself, std::vector<Tensor> parameters,
                                                  double lr = 1) {
  if (by_itself) return std::make_unique<optim::SGD>(std::move(parameters), optim::SgdOptions{.lr = lr});
  return std::make_unique<UsersSgd>(std::move(parameters), lr);
}

/// A scaler that has scaled something, and one such optimizer.
struct Rig {
  Rig(bool by_itself, const Values& gradients, const amp::GradScalerOptions& options = {},
      DType dtype = float32)
      : parameters(with_gradients(gradients, dtype)),
        optimizer(make_sgd(by_itself, parameters)),
        scaler(options) {
    scaler.scale(scalar(0, float32));
  }
  int64_t tracker() const { return scaler.state_dict().at("_growth_tracker").item<int64_t>(); }

  std::vector<Tensor> parameters;
  std::unique_ptr<optim::Optimizer> optimizer;
  amp::GradScaler scaler;
};

/// Runs `f` with an optimizer that unscales by itself, and with one that does not.
inline void for_both_kinds(const std::function<void(bool)>& f) {
  for (const bool by_itself : {false, true}) {
    CAPTURE(by_itself);
    f(by_itself);
  }
}

}  // namespace mezzo
