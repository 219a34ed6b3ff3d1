#include "nn/batch_norm.h"

#include <cmath>

#include "autograd/grad_mode.h"
#include "autograd/ops.h"

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
  const bool tracked = options_.track_running_stats, update = is_training() && tracked;
  double momentum = options_.momentum.value_or(0);
  if (update && !options_.momentum) momentum = 1.0 / (num_batches_tracked.item<double>() + 1);
  const Tensor y = mezzo::batch_norm(
      x, weight, bias, running_mean, running_var,
      {.batch_statistics = is_training() || !tracked, .momentum = momentum, .eps = options_.eps});
  if (update) num_batches_tracked.add_(1);  // after: a refused input changes nothing
  return y;
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
