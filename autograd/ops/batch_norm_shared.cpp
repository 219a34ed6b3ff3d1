#include "autograd/ops/batch_norm.h"
#include "tensor/tensor_impl.h"

namespace mezzo::ops {

void check_batch_norm(std::string_view op, Inputs in, const BatchNormOptions& options) {
  const Tensor& x = in[0];
  if (x.dim() < 2)
    fail(op, text("input must be [N, C, ...] but has ", x.dim(), " dimensions"), {{"input", x}});
  if (!is_floating(x.dtype())) fail(op, "needs a floating dtype", {{"input", x}});
  constexpr std::string_view names[] = {"input", "weight", "bias", "running_mean", "running_var"};
  for (size_t k = 1; k < std::size(names); ++k) {
    if (!in[k].defined()) continue;
    if (!is_floating(in[k].dtype())) fail(op, "needs a floating dtype", {{names[k], in[k]}});
    if (in[k].shape() != Shape{x.size(1)}) {
      fail(op, text("input has ", x.size(1), " channels but ", names[k], " has ", in[k].numel(), " elements"),
           {{"input", x}, {names[k], in[k]}});
    }
  }
  if (in[3].defined() != in[4].defined()) {
    fail(op, "running_mean and running_var go together", {{"running_mean", in[3]}, {"running_var", in[4]}});
  }
  if (!options.batch_statistics && !(in[3].defined() && in[4].defined())) {
    fail(op, "without batch statistics it needs running_mean and running_var", {{"input", x}});
  }
  if (options.batch_statistics && x.numel() > 0 && values_per_channel(x) == 1) {
    fail(op, "expected more than 1 value per channel when training", {{"input", x}},
         "call eval(), or give a larger batch");
  }
}

Normalisation normalisation(Inputs in, const BatchNormOptions& options) {
  const Tensor& x = in[0];
  const TensorOptions statistics{.dtype = compute_type(x.dtype()), .device = x.device()};
  Tensor mean = in[3], var = in[4];
  if (options.batch_statistics) {
    mean = empty({x.size(1)}, statistics);
    var = empty({x.size(1)}, statistics);
    kernels(x.device())
        .batch_norm_statistics(mean.view_of_memory(), var.view_of_memory(), x.view_of_memory());
    if (x.numel() > 0)
      update_running_statistics(in[3], in[4], mean, var, values_per_channel(x), options.momentum);
  } else {
    mean = mean.clone().to(*statistics.dtype);  // running ones go on changing: backward needs what they were
  }
  return {mean, div(1.0, sqrt(add(var.to(*statistics.dtype), options.eps)))};
}

void update_running_statistics(const Tensor& running_mean, const Tensor& running_var, const Tensor& mean,
                               const Tensor& var, int64_t n, double momentum) {
  if (!running_mean.defined()) return;
  const auto update = [momentum](Tensor running, const Tensor& batch) {
    running.copy_(add(mul(running, 1 - momentum), mul(batch, momentum)));
  };
  const auto count = static_cast<double>(n);
  update(running_mean, mean);
  update(running_var, mul(var, count / (count - 1)));
}

}  // namespace mezzo::ops
