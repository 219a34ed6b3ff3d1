// Activations as modules.
#pragma once

#include <string>
#include <utility>

#include "autograd/ops.h"
#include "nn/module.h"

namespace mezzo::nn {

/// max(x, 0)
struct ReLU : Module {
  Tensor forward(const Tensor& x) override { return relu(x); }
};

/// 1 / (1 + exp(-x))
struct Sigmoid : Module {
  Tensor forward(const Tensor& x) override { return sigmoid(x); }
};

/// Hyperbolic tangent.
struct Tanh : Module {
  Tensor forward(const Tensor& x) override { return tanh(x); }
};

/// x times the normal distribution function of x; `approximate` "tanh" takes the formula with tanh.
class GELU : public Module {
 public:
  explicit GELU(std::string approximate = "none") : approximate_(std::move(approximate)) {}
  Tensor forward(const Tensor& x) override { return gelu(x, approximate_); }
  std::string extra() const override { return "approximate='" + approximate_ + "'"; }
  const std::string& approximate() const { return approximate_; }

 private:
  std::string approximate_;
};

/// x sigmoid(x)
struct SiLU : Module {
  Tensor forward(const Tensor& x) override { return silu(x); }
};

/// log(1 + exp(x))
struct Softplus : Module {
  Tensor forward(const Tensor& x) override { return softplus(x); }
};

}  // namespace mezzo::nn
