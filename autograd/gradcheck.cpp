#include "autograd/gradcheck.h"

#include <cmath>

#include "autograd/call.h"
#include "autograd/engine.h"
#include "autograd/ops.h"
#include "tensor/random.h"

namespace mezzo {

namespace {

bool is_checked(const Tensor& x) { return x.defined() && is_floating(x.dtype()); }

/// Fixed weights for the outputs: one number, sum of weights * outputs, then stands for all of them.
Tensors random_weights(const Tensors& outputs) {
  Tensors weights;
  for (const Tensor& y : outputs) {
    weights.push_back(rand(y.shape(), {.dtype = y.dtype(), .device = y.device()}));
    weights.back().add_(0.5);
  }
  return weights;
}

double weighted_sum(const Tensors& outputs, const Tensors& weights) {
  double total = 0;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (is_checked(outputs[i])) total += mul(outputs[i], weights[i]).sum().to(float64).item<double>();
  }
  return total;
}

/// Fresh leaves with the inputs' values and strides.
Tensors leaves_of(Inputs inputs) {
  Tensors leaves;
  for (const Tensor& x : inputs) {
    leaves.push_back(x.defined() ? x.detach().clone() : Tensor());
    if (is_checked(x)) leaves.back().requires_grad_();
  }
  return leaves;
}

}  // namespace

std::string gradcheck(const TensorFunction& f, Inputs inputs, const GradcheckOptions& options) {
  for (const Tensor& x : inputs) {
    if (is_checked(x) && x.dtype() != float64)
      fail("gradcheck", "differences need float64 inputs", {{"input", x}});
  }
  Tensors leaves = leaves_of(inputs), outputs, starts;
  std::vector<size_t> positions;
  const Tensors all = [&] {
    EnableGradGuard guard;
    return f(leaves);
  }();
  const Tensors weights = random_weights(all);
  for (size_t i = 0; i < all.size(); ++i) {
    if (!all[i].requires_grad()) continue;
    outputs.push_back(all[i]);
    starts.push_back(weights[i]);
  }
  if (outputs.empty()) return "no output requires grad";
  for (size_t i = 0; i < leaves.size(); ++i) {
    if (!is_checked(leaves[i])) continue;
    positions.push_back(i);
    leaves[i].set_grad({});
  }
  // backward rather than grad(): an input that an output does not depend on simply keeps no gradient.
  for (size_t i = 0; i < outputs.size(); ++i) outputs[i].backward(starts[i], i + 1 < outputs.size());

  NoGradGuard guard;
  for (size_t p : positions) {
    const Tensor& leaf = leaves[p];
    const std::vector<double> analytic = leaf.grad().defined()
                                             ? leaf.grad().to_vector<double>()
                                             : std::vector<double>(static_cast<size_t>(leaf.numel()));
    const std::vector<double> values = leaf.to_vector<double>();
    for (size_t k = 0; k < values.size(); ++k) {
      const auto moved = [&](double by) {
        std::vector<double> changed = values;
        changed[k] += by;
        Tensors at(leaves.begin(), leaves.end());
        at[p] = leaf.detach().clone();
        at[p].copy_(tensor(changed, leaf.shape(), {.dtype = float64, .device = leaf.device()}));
        return weighted_sum(f(at), weights);
      };
      const double difference = (moved(options.step) - moved(-options.step)) / (2 * options.step);
      if (!(std::abs(analytic[k] - difference) <=
            options.absolute + options.relative * std::abs(difference))) {
        return text("input ", p, ", element ", k, ": gradient ", analytic[k], ", difference ", difference);
      }
    }
  }
  return "";
}

std::string gradgradcheck(const TensorFunction& f, Inputs inputs, const GradcheckOptions& options) {
  // The first gradient as a function of the inputs and of the output's gradient, itself checked.
  Tensors arguments(inputs.begin(), inputs.end());
  const size_t count = inputs.size();
  for (const Tensor& y : random_weights(f(inputs))) arguments.push_back(y);
  const auto first_gradient = [&](Inputs at) {
    EnableGradGuard guard;
    Tensors points(at.begin(), at.begin() + static_cast<std::ptrdiff_t>(count));
    Tensors wanted, outputs, starts;
    for (Tensor& x : points) {
      if (!is_checked(x)) continue;
      if (!x.requires_grad()) x = x.detach().requires_grad_();
      wanted.push_back(x);
    }
    const Tensors all = f(points);
    for (size_t i = 0; i < all.size(); ++i) {
      if (!all[i].requires_grad()) continue;
      outputs.push_back(all[i]);
      starts.push_back(at[count + i]);
    }
    Tensors grads = grad(outputs, wanted, starts, {.create_graph = true, .allow_unused = true});
    std::erase_if(grads, [](const Tensor& gradient) { return !gradient.defined(); });
    return grads;
  };
  return gradcheck(first_gradient, arguments, options);
}

}  // namespace mezzo
