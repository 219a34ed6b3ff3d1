#include "nn/batch_norm.h"

#include <cmath>

#include "autograd/cast_hook.h"
#include "autograd/grad_mode.h"
#include "autograd/ops.h"
#include "autograd/ops/batch_norm.h"

namespace mezzo::nn {

BatchNorm::BatchNorm(std::string_view name, const Input& input, int64_t num_features,
                     const BatchNormOptions& options)
    : input_(input), num_features_(num_features), options_(options) {
  if (num_features < 1) fail(name, text("needs at least 1 channel, not ", num_features));
  if (options.eps < 0) fail(name, text("eps = ", options.eps, " is negative"));
  if (options.affine) {
    weight = add_parameter("weight", ones({num_features}));
    bias = add_parameter("bias", zeros({num_features}));
  }
  if (options.track_running_stats) {
    running_mean = add_buffer("running_mean", zeros({num_features}));
    running_var = add_buffer("running_var", ones({num_features}));
    num_batches_tracked = add_buffer("num_batches_tracked", zeros({}, {.dtype = int64}));
  }
}

Tensor BatchNorm::forward(const Tensor& x) {
  if (x.dim() < input_.least || x.dim() > input_.most)
    fail("batch_norm", text("expected ", input_.shape, " but the input has ", x.dim(), " dimensions"),
         {{"input", x}});
  if (x.size(1) != num_features_) {
    fail("batch_norm", text("input has ", x.size(1), " channels but the layer expects ", num_features_),
         {{"input", x}});
  }
  const Tensor y = mezzo::batch_norm(x, weight, bias, running_mean, running_var, call_options());
  count_batch();
  return y;
}

bool BatchNorm::takes(const Tensor& x) const {
  const Tensor& any = weight.defined() ? weight : running_mean;
  return x.defined() && x.dim() >= input_.least && x.dim() <= input_.most && x.size(1) == num_features_ &&
         is_floating(x.dtype()) && (!any.defined() || x.device() == any.device()) &&
         (!uses_batch() || x.numel() != num_features_);
}

Tensor BatchNorm::forward_relu(const Tensor& x, const Tensor& residual) {
  const Tensor y = batch_norm_relu(x, weight, bias, running_mean, running_var, residual, call_options());
  count_batch();
  return y;
}

std::array<Tensor, 2> BatchNorm::statistics(const Tensor& mean, const Tensor& var, int64_t values) {
  if (!uses_batch()) return {running_mean.clone(), running_var.clone()};  // which go on changing
  if (values > 0 && running_mean.defined()) {
    const NoGradGuard no_grad;
    const CastHookGuard no_cast(nullptr);
    ops::update_running_statistics(running_mean, running_var, mean, var, values, call_options().momentum);
    count_batch();
  }
  return {mean, var};
}

mezzo::BatchNormOptions BatchNorm::call_options() const {
  const bool updates = is_training() && options_.track_running_stats;
  double momentum = options_.momentum.value_or(0);
  if (updates && !options_.momentum) momentum = 1.0 / (num_batches_tracked.item<double>() + 1);
  return {.batch_statistics = uses_batch(), .momentum = momentum, .eps = options_.eps};
}

void BatchNorm::count_batch() {
  if (is_training() && options_.track_running_stats) num_batches_tracked.add_(1);
}

std::string BatchNorm::extra() const {
  const auto flag = [](bool set) { return set ? "True" : "False"; };
  const auto number = [](double value) { return text(value, value == std::floor(value) ? ".0" : ""); };
  return text(num_features_, ", eps=", options_.eps,
              ", momentum=", options_.momentum ? number(*options_.momentum) : "None",
              ", affine=", flag(options_.affine), ", bias=", flag(options_.affine),
              ", track_running_stats=", flag(options_.track_running_stats));
}

}  // namespace mezzo::nn
