#include "optim/clip.h"

#include <cmath>

#include "autograd/grad_mode.h"
#include "autograd/ops.h"
#include "autograd/ops/inplace.h"
#include "optim/by_device.h"
#include "tensor/tensor_impl.h"

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

/// The norm of all, on the first one's device, in the dtype that they promote to.
Tensor total_norm(const std::vector<Tensor>& grads, double norm_type) {
  DType dtype = grads[0].dtype();
  for (const Tensor& grad : grads) dtype = promote(dtype, grad.dtype());
  std::vector<Tensor> norms;  // of each device
  for (const auto& [device, views] : views_by_device(grads)) {
    const Tensor norm = empty({}, {.dtype = dtype, .device = device});
    kernels(device).norm(norm.view_of_memory(), views, norm_type);
    norms.push_back(norm.to(grads[0].device()));
  }
  return norms.size() == 1 ? norms[0] : stack(norms).norm(norm_type);
}

}  // namespace

Tensor clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm, double norm_type,
                       bool error_if_nonfinite) {
  if (!(max_norm >= 0)) fail("clip_grad_norm_", text("max_norm must be at least 0, not ", max_norm));
  if (!(norm_type > 0)) fail("clip_grad_norm_", text("norm_type must be above 0, not ", norm_type));
  const NoGradGuard guard;
  const std::vector<Tensor> grads = gradients(parameters);
  if (grads.empty()) return zeros({});

  const Tensor total = total_norm(grads, norm_type);
  if (error_if_nonfinite && !std::isfinite(total.item<double>())) {
    fail("clip_grad_norm_", text("the total norm is ", total.item<double>(), ", so nothing can be clipped"),
         {}, "error_if_nonfinite = false scales by it anyway");
  }
  for (const Tensor& grad : grads) ops::check_writable("clip_grad_norm_", grad, false);
  for (const auto& [device, views] : views_by_device(grads)) {
    const Tensor near = total.to(device);
    kernels(device).clip(views, near.view_of_memory(), max_norm);
  }
  for (const Tensor& grad : grads) grad.bump_version();
  return total;
}

void clip_grad_value_(const std::vector<Tensor>& parameters, double clip_value) {
  if (!(clip_value >= 0)) fail("clip_grad_value_", text("clip_value must be at least 0, not ", clip_value));
  const NoGradGuard guard;
  for (Tensor grad : gradients(parameters)) grad.clamp_(-clip_value, clip_value);
}

}  // namespace mezzo::optim
