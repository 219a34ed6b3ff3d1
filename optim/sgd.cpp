#include "optim/sgd.h"

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
    : UnscalingOptimizer(all_parameters(groups)),
      groups_(std::move(groups)),
      momentum_buffers_(parameters().size()) {
  for (const auto& group : groups_) check(group.options);
}

void SGD::step(const LossScale& loss_scale) {
  for (const auto& group : groups_) check(group.options);  // they may have been changed
  if (loss_scale.skips_step()) return;
  std::vector<Tensor> fresh(momentum_buffers_.size());  // all memory first, as in Adam
  for_gradients(groups_, [&](size_t i, const Tensor& parameter, const SgdOptions& options) {
    const bool first = options.momentum != 0 && !momentum_buffers_[i].defined();
    if (first) fresh[i] = zeros_for_moment(parameter);
  });
  size_t i = 0;
  for (const auto& [parameters, options] : groups_) {
    ByDevice<SgdTensors> all;
    for (const Tensor& parameter : parameters) {
      const bool first = fresh[i].defined();
      Tensor& buffer = momentum_buffers_[i];
      if (first) buffer = fresh[i];
      ++i;
      if (!parameter.grad().defined()) continue;
      all[parameter.device()].push_back({parameter.view_of_memory(), parameter.grad().view_of_memory(),
                                         options.momentum != 0 ? buffer.view_of_memory() : View{}, first});
      parameter.bump_version();
      if (loss_scale.scale.defined()) parameter.grad().bump_version();
    }
    for (const auto& [device, tensors] : all) {
      const Tensor scale = loss_scale.scale_on(device);
      kernels(device).sgd(tensors, {.lr = options.lr,
                                    .momentum = options.momentum,
                                    .dampening = options.dampening,
                                    .weight_decay = options.weight_decay,
                                    .nesterov = options.nesterov,
                                    .maximize = options.maximize,
                                    .loss_scale = view_or_none(scale)});
    }
  }
}

void SGD::visit_state(StateVisitor& visitor) {
  for (size_t i = 0; i < momentum_buffers_.size(); ++i) {
    visitor.tensors({{text("state.", i, ".momentum_buffer"), momentum_buffers_[i]}}, parameters()[i]);
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
