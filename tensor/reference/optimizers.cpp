// Optimizer steps, element by element. Kingma and Ba (2015) for Adam, Loshchilov and Hutter (2019) for its
// decay, Reddi et al. (2018) for the running maximum.
#include <cmath>

#include "tensor/reference/element.h"
#include "tensor/reference/kernel_families.h"

namespace mezzo::reference {
namespace {

void adam(const AdamTensors& tensors, const AdamArgs& args) {
  for (int64_t i = 0; i < tensors.param.numel(); ++i) {
    const double p = get(tensors.param, i) * args.decay;
    const double g = (args.maximize ? -get(tensors.grad, i) : get(tensors.grad, i)) + args.weight_decay * p;
    const double m = args.beta1 * get(tensors.exp_avg, i) + (1 - args.beta1) * g;
    const double v = args.beta2 * get(tensors.exp_avg_sq, i) + (1 - args.beta2) * g * g;
    set(tensors.exp_avg, i, m);
    set(tensors.exp_avg_sq, i, v);
    double divisor = v;
    if (tensors.max_exp_avg_sq.given()) {
      const double most = get(tensors.max_exp_avg_sq, i);
      divisor = v > most || std::isnan(v) ? v : most;
      set(tensors.max_exp_avg_sq, i, divisor);
    }
    set(tensors.param, i, p - args.step_size * m / (std::sqrt(divisor) / args.bias2_sqrt + args.eps));
  }
}

void sgd(const SgdTensors& tensors, const SgdArgs& args) {
  for (int64_t i = 0; i < tensors.param.numel(); ++i) {
    const double p = get(tensors.param, i);
    double g = (args.maximize ? -get(tensors.grad, i) : get(tensors.grad, i)) + args.weight_decay * p;
    if (tensors.momentum_buffer.given()) {
      const double buffer =
          args.first ? g : args.momentum * get(tensors.momentum_buffer, i) + (1 - args.dampening) * g;
      set(tensors.momentum_buffer, i, buffer);
      g = args.nesterov ? g + args.momentum * buffer : buffer;
    }
    set(tensors.param, i, p - args.lr * g);
  }
}

}  // namespace

void add_optimizers(Kernels& table) {
  table.adam = adam;
  table.sgd = sgd;
}

}  // namespace mezzo::reference
