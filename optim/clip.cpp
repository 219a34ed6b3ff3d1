#include "optim/clip.h"

#include <cmath>

#include "autograd/grad_mode.h"
#include "autograd/ops.h"

namespace mezzo::optim {

namespace {

/// Those that there are; one of no elements has no norm to add.
std::vector<Tensor> gradients(const std::vector<Tensor>& parameters) {
  std::vector<Tensor> grads;
  for (const Tensor& parameter : parameters) {
    if (parameter.grad().defined() && parameter.numel() > 0) grads.push_back(parameter.grad());
  }
  return grads;
}

}  // namespace

Tensor clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm, double norm_type,
                       bool error_if_nonfinite) {
  if (!(max_norm >= 0)) fail("clip_grad_norm_", text("max_norm must be at least 0, not ", max_norm));
  if (!(norm_type > 0)) fail("clip_grad_norm_", text("norm_type must be above 0, not ", norm_type));
  const NoGradGuard guard;
  const std::vector<Tensor> grads = gradients(parameters);
  if (grads.empty()) return zeros({});

  std::vector<Tensor> norms;
  for (const Tensor& grad : grads) norms.push_back(grad.norm(norm_type).to(grads[0].device()));
  const Tensor total = stack(norms).norm(norm_type);
  if (error_if_nonfinite && !std::isfinite(total.item<double>())) {
    fail("clip_grad_norm_", text("the total norm is ", total.item<double>(), ", so nothing can be clipped"),
         {}, "error_if_nonfinite = false scales by it anyway");
  }
  const Tensor factor = minimum(max_norm / (total + 1e-6), 1.0);
  for (Tensor grad : grads) grad.mul_(factor.to(grad.device()));
  return total;
}

void clip_grad_value_(const std::vector<Tensor>& parameters, double clip_value) {
  if (!(clip_value >= 0)) fail("clip_grad_value_", text("clip_value must be at least 0, not ", clip_value));
  const NoGradGuard guard;
  for (Tensor grad : gradients(parameters)) grad.clamp_(-clip_value, clip_value);
}

}  // namespace mezzo::optim
