#include "optim/adam.h"

#include <cmath>

#include "optim/by_device.h"
#include "tensor/tensor_impl.h"

namespace mezzo::optim {

namespace {

void check(const AdamOptions& options) {
  const auto refuse = [](std::string_view what, double value) {
    fail("Adam", text("invalid ", what, ": ", value));
  };
  if (!(options.lr >= 0)) refuse("learning rate", options.lr);
  if (!(options.beta1 >= 0 && options.beta1 < 1)) refuse("beta1", options.beta1);
  if (!(options.beta2 >= 0 && options.beta2 < 1)) refuse("beta2", options.beta2);
  if (!(options.eps >= 0)) refuse("eps", options.eps);
  const double weight_decay = options.weight_decay.value_or(0);
  if (!(weight_decay >= 0)) refuse("weight decay", weight_decay);
}

}  // namespace

Adam::Adam(std::vector<Tensor> parameters, const AdamOptions& options)
    : Adam(std::vector<Group<AdamOptions>>{{std::move(parameters), options}}) {}

Adam::Adam(std::vector<Group<AdamOptions>> groups) : Adam(std::move(groups), false) {}

Adam::Adam(std::vector<Group<AdamOptions>> groups, bool decoupled_decay)
    : UnscalingOptimizer(all_parameters(groups)),
      groups_(std::move(groups)),
      states_(parameters().size()),
      decoupled_decay_(decoupled_decay) {
  for (const auto& group : groups_) check(group.options);
}

void Adam::step(const LossScale& loss_scale) {
  for (const auto& group : groups_) check(group.options);  // they may have been changed
  if (loss_scale.skips_step_now()) return;
  // All memory first: if there is not enough, no parameter has changed.
  for_gradients(groups_, [&](size_t i, const Tensor& parameter, const AdamOptions& options) {
    allocate(states_[i], parameter, options);
  });
  size_t i = 0;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const auto& [parameters, options] = groups_[g];
    ByDevice<AdamTensors> all;
    for (const Tensor& parameter : parameters) {
      State& state = states_[i++];
      if (!parameter.grad().defined()) continue;
      AdamTensors tensors = tensors_of(state, parameter, options);
      tensors.cast = begin_change(parameter, loss_scale);
      all[parameter.device()].push_back(tensors);
    }
    for (const auto& [device, tensors] : all) {
      const Numbers numbers = numbers_on(device, g, loss_scale);
      kernels(device).adam(tensors, {.state = numbers.state(),
                                     .beta1 = options.beta1,
                                     .beta2 = options.beta2,
                                     .eps = options.eps,
                                     .weight_decay = weight_decay(options),
                                     .decoupled = decoupled_decay_,
                                     .maximize = options.maximize});
    }
  }
}

void Adam::allocate(State& state, const Tensor& parameter, const AdamOptions& options) {
  if (!state.exp_avg.defined()) {
    check_not_first(parameter);
    state = {zeros_for_count(parameter), zeros_for_moment(parameter), zeros_for_moment(parameter), {}};
  }
  if (!state.step.defined()) state.step = zeros_for_count(parameter);  // that of a loaded state may be 0
  if (options.amsgrad && !state.max_exp_avg_sq.defined()) {
    check_not_first(parameter);
    state.max_exp_avg_sq = zeros_for_moment(parameter);
  }
}

AdamTensors Adam::tensors_of(const State& state, const Tensor& parameter, const AdamOptions& options) {
  return {.param = parameter.view_of_memory(),
          .grad = parameter.grad().view_of_memory(),
          .exp_avg = state.exp_avg.view_of_memory(),
          .exp_avg_sq = state.exp_avg_sq.view_of_memory(),
          .max_exp_avg_sq = options.amsgrad ? state.max_exp_avg_sq.view_of_memory() : View{},
          .steps = state.step.view_of_memory()};
}

double Adam::weight_decay(const AdamOptions& options) const {
  return options.weight_decay.value_or(decoupled_decay_ ? 0.01 : 0);
}

void Adam::visit_state(StateVisitor& visitor) {
  for (size_t i = 0; i < states_.size(); ++i) {
    const std::string prefix = text("state.", i, '.');
    visit_begun(states_[i], states_[i].step, [&](State& state) {
      visitor.count(prefix + "step", state.step, parameters()[i]);
      visitor.tensors({{prefix + "exp_avg", state.exp_avg}, {prefix + "exp_avg_sq", state.exp_avg_sq}},
                      parameters()[i]);
      visitor.tensors({{prefix + "max_exp_avg_sq", state.max_exp_avg_sq}}, parameters()[i]);
      return state.exp_avg.defined();
    });
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    const std::string prefix = text("group.", g, '.');
    AdamOptions& options = groups_[g].options;
    visitor.number(prefix + "lr", options.lr);
    visitor.number(prefix + "beta1", options.beta1);
    visitor.number(prefix + "beta2", options.beta2);
    visitor.number(prefix + "eps", options.eps);
    visitor.number(prefix + "weight_decay", options.weight_decay.emplace(weight_decay(options)));
    visitor.number(prefix + "amsgrad", options.amsgrad);
    visitor.number(prefix + "maximize", options.maximize);
  }
}

}  // namespace mezzo::optim
