#include "optim/sgd.h"

#include "optim/by_device.h"
#include "tensor/tensor_impl.h"

namespace mezzo::optim {

namespace {

void check(const SgdOptions& options) {
  const auto refuse = [](std::string_view what, double value) {
    fail("SGD", text("invalid ", what, ": ", value));
  };
  if (!(options.lr >= 0)) refuse("learning rate", options.lr);
  if (!(options.momentum >= 0)) refuse("momentum", options.momentum);
  if (!(options.weight_decay >= 0)) refuse("weight decay", options.weight_decay);
  if (options.nesterov && (options.momentum <= 0 || options.dampening != 0)) {
    fail("SGD", "nesterov needs a momentum and no dampening");
  }
}

}  // namespace

SGD::SGD(std::vector<Tensor> parameters, const SgdOptions& options)
    : SGD(std::vector<Group<SgdOptions>>{{std::move(parameters), options}}) {}

SGD::SGD(std::vector<Group<SgdOptions>> groups)
    : UnscalingOptimizer(all_parameters(groups)), groups_(std::move(groups)), states_(parameters().size()) {
  for (const auto& group : groups_) check(group.options);
}

void SGD::step(const LossScale& loss_scale) {
  for (const auto& group : groups_) check(group.options);  // they may have been changed
  if (loss_scale.skips_step_now()) return;
  // All memory first, as in Adam.
  for_gradients(groups_, [&](size_t i, const Tensor& parameter, const SgdOptions& options) {
    if (options.momentum == 0 || states_[i].steps.defined()) return;
    check_not_first(parameter);
    states_[i] = {zeros_for_moment(parameter), zeros_for_count(parameter)};
  });
  size_t i = 0;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const auto& [parameters, options] = groups_[g];
    ByDevice<SgdTensors> all;
    for (const Tensor& parameter : parameters) {
      const State& state = states_[i++];
      if (!parameter.grad().defined()) continue;
      const bool with_momentum = options.momentum != 0;
      all[parameter.device()].push_back({parameter.view_of_memory(), parameter.grad().view_of_memory(),
                                         with_momentum ? state.momentum_buffer.view_of_memory() : View{},
                                         with_momentum ? state.steps.view_of_memory() : View{},
                                         begin_change(parameter, loss_scale)});
    }
    for (const auto& [device, tensors] : all) {
      const Numbers numbers = numbers_on(device, g, loss_scale);
      kernels(device).sgd(tensors, {.state = numbers.state(),
                                    .momentum = options.momentum,
                                    .dampening = options.dampening,
                                    .weight_decay = options.weight_decay,
                                    .nesterov = options.nesterov,
                                    .maximize = options.maximize});
    }
  }
}

void SGD::visit_state(StateVisitor& visitor) {
  for (size_t i = 0; i < states_.size(); ++i) {
    visit_begun(states_[i], states_[i].steps, [&](State& state) {
      visitor.tensors({{text("state.", i, ".momentum_buffer"), state.momentum_buffer}}, parameters()[i]);
      if (!state.momentum_buffer.defined()) return false;
      if (!state.steps.defined()) state.steps = zeros_for_count(parameters()[i]).fill_(1);
      return true;
    });
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    const std::string prefix = text("group.", g, '.');
    SgdOptions& options = groups_[g].options;
    visitor.number(prefix + "lr", options.lr);
    visitor.number(prefix + "momentum", options.momentum);
    visitor.number(prefix + "dampening", options.dampening);
    visitor.number(prefix + "weight_decay", options.weight_decay);
    visitor.number(prefix + "nesterov", options.nesterov);
    visitor.number(prefix + "maximize", options.maximize);
  }
}

}  // namespace mezzo::optim
