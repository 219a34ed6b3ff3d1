// Optimizer steps, element by element. Kingma and Ba (2015) for Adam, Loshchilov and Hutter (2019) for its
// decay, Reddi et al. (2018) for the running maximum.
#include <cmath>

#include "tensor/reference/element.h"
#include "tensor/reference/kernel_families.h"

namespace mezzo::reference {
namespace {

/// g * inverse(scale) of element i, in the precision of the gradient's arithmetic.
double unscaled(const View& grad, int64_t i, const View& scale) {
  if (!scale.given()) return get(grad, i);
  const float factor = inverse(load<float>(scale, 0));
  if (grad.dtype == DType::float64) return get(grad, i) * factor;
  return static_cast<float>(get(grad, i)) * factor;
}

/// Gradients that keep what unscaling makes of them.
void unscale_in_place(const View& grad, const View& scale) {
  if (!scale.given()) return;
  for (int64_t i = 0; i < grad.numel(); ++i) set(grad, i, unscaled(grad, i, scale));
}

/// Whether weight decay is a part of the gradient.
bool couples_decay(const AdamArgs& args) { return !args.decoupled && args.weight_decay != 0; }
bool couples_decay(const SgdArgs& args) { return args.weight_decay != 0; }

/// The gradient g of parameter p as the update takes it.
template <class Args>
double decayed(const Args& args, double g, double p) {
  if (args.maximize) g = -g;
  return couples_decay(args) ? g + args.weight_decay * p : g;
}

/// The parameter's number of steps, this one included.
int64_t count_step(const View& steps) {
  const auto t = load<int64_t>(steps, 0) + 1;
  store(steps, 0, t);
  return t;
}

void set_param(const View& param, const View& cast, int64_t i, double value) {
  set(param, i, value);
  if (cast.given()) set(cast, i, get(param, i));
}

void adam(std::span<const AdamTensors> parameters, const AdamArgs& args) {
  if (value_or(args.state.found_inf, 0, 0) != 0) return;
  const double lr = get(args.state.lr, 0), decay = args.decoupled ? 1 - lr * args.weight_decay : 1;
  for (const AdamTensors& x : parameters) {
    const auto t = static_cast<double>(count_step(x.steps));
    const double step_size = lr / (1 - std::pow(args.beta1, t));
    const double bias2_sqrt = std::sqrt(1 - std::pow(args.beta2, t));
    unscale_in_place(x.grad, args.state.loss_scale);
    for (int64_t i = 0; i < x.param.numel(); ++i) {
      const double p = get(x.param, i) * decay;
      const double g = decayed(args, get(x.grad, i), p);
      const double m = args.beta1 * get(x.exp_avg, i) + (1 - args.beta1) * g;
      const double v = args.beta2 * get(x.exp_avg_sq, i) + (1 - args.beta2) * g * g;
      set(x.exp_avg, i, m);
      set(x.exp_avg_sq, i, v);
      double divisor = v;
      if (x.max_exp_avg_sq.given()) {
        const double most = get(x.max_exp_avg_sq, i);
        divisor = v > most || std::isnan(v) ? v : most;
        set(x.max_exp_avg_sq, i, divisor);
      }
      set_param(x.param, x.cast, i, p - step_size * m / (std::sqrt(divisor) / bias2_sqrt + args.eps));
    }
  }
}

void sgd(std::span<const SgdTensors> parameters, const SgdArgs& args) {
  if (value_or(args.state.found_inf, 0, 0) != 0) return;
  const double lr = get(args.state.lr, 0);
  for (const SgdTensors& x : parameters) {
    const bool first = x.momentum_buffer.given() && count_step(x.steps) == 1;
    unscale_in_place(x.grad, args.state.loss_scale);
    for (int64_t i = 0; i < x.param.numel(); ++i) {
      const double p = get(x.param, i);
      double g = decayed(args, get(x.grad, i), p);
      if (x.momentum_buffer.given()) {
        const double buffer =
            first ? g : args.momentum * get(x.momentum_buffer, i) + (1 - args.dampening) * g;
        set(x.momentum_buffer, i, buffer);
        g = args.nesterov ? g + args.momentum * buffer : buffer;
      }
      set_param(x.param, x.cast, i, p - lr * g);
    }
  }
}

void unscale(std::span<const View> grads, const View& scale, const View& found_inf, bool write) {
  for (const View& grad : grads) {
    for (int64_t i = 0; i < grad.numel(); ++i) {
      if (!(std::abs(unscaled(grad, i, scale)) <= largest_of(grad.dtype))) set(found_inf, 0, 1);
    }
    if (write) unscale_in_place(grad, scale);
  }
}

void update_scale(const View& scale, const View& tracker, const View& found_inf, const ScaleRule& rule) {
  const ScaleState state{load<float>(scale, 0), load<int32_t>(tracker, 0)};
  const ScaleState updated = next(state, get(found_inf, 0) != 0, rule);
  store(scale, 0, updated.scale);
  store(tracker, 0, updated.tracker);
}

}  // namespace

void add_optimizers(Kernels& table) {
  table.adam = adam;
  table.sgd = sgd;
  table.unscale = unscale;
  table.update_scale = update_scale;
}

}  // namespace mezzo::reference
