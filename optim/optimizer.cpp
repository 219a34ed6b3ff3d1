#include "optim/optimizer.h"

#include <algorithm>
#include <atomic>
#include <unordered_set>

#include "autograd/grad_mode.h"
#include "autograd/ops/inplace.h"
#include "optim/by_device.h"
#include "tensor/backend.h"
#include "tensor/tensor_impl.h"
#include "tensor/weight_cast.h"

namespace mezzo::optim {

namespace {

/// The number in a 0-d tensor of a state dict.
template <class T>
Tensor as_tensor(T value) {
  return full({}, value, {.dtype = dtype_of<T>});
}

class Saver final : public StateVisitor {
 public:
  void number(const std::string& name, double& value) override { state.insert(name, as_tensor(value)); }
  void number(const std::string& name, int64_t& value) override { state.insert(name, as_tensor(value)); }
  void number(const std::string& name, bool& value) override { state.insert(name, as_tensor(value)); }
  void tensors(std::initializer_list<Slot> slots, const Tensor&) override {
    for (const auto& [name, tensor] : slots) {
      if (tensor.defined()) state.insert(name, tensor.clone());
    }
  }
  StateDict state;
};

/// Finds what does not fit.
class Checker final : public StateVisitor {
 public:
  explicit Checker(const StateDict& state) : state_(state) {}
  void number(const std::string& name, double&) override { check(name, {}, true); }
  void number(const std::string& name, int64_t&) override { check(name, {}, true); }
  void number(const std::string& name, bool&) override { check(name, {}, true); }
  void tensors(std::initializer_list<Slot> slots, const Tensor& like) override {
    const bool there =
        std::ranges::any_of(slots, [&](const Slot& slot) { return state_.contains(slot.name); });
    for (const Slot& slot : slots) check(slot.name, like.shape(), there);
  }

  void finish() {
    for (const auto& [name, value] : state_) {
      if (!known_.contains(name)) add("unexpected " + name);
    }
    if (!problems_.empty()) fail("load_state_dict", problems_);
  }

 private:
  void check(const std::string& name, const Shape& shape, bool required) {
    known_.insert(name);
    if (!state_.contains(name)) {
      if (required) add("missing " + name);
    } else if (state_.at(name).shape() != shape) {
      add(text("wrong shape ", name, ' ', to_string(state_.at(name).shape()), " for ", to_string(shape)));
    }
  }
  void add(const std::string& problem) { problems_ += (problems_.empty() ? "" : ", ") + problem; }

  const StateDict& state_;
  std::unordered_set<std::string> known_;
  std::string problems_;
};

class Loader final : public StateVisitor {
 public:
  explicit Loader(const StateDict& state) : state_(state) {}
  void number(const std::string& name, double& value) override { value = state_.at(name).item<double>(); }
  void number(const std::string& name, int64_t& value) override { value = state_.at(name).item<int64_t>(); }
  void number(const std::string& name, bool& value) override { value = state_.at(name).item<bool>(); }
  void tensors(std::initializer_list<Slot> slots, const Tensor& like) override {
    for (const auto& [name, tensor] : slots) {
      tensor = state_.contains(name) ? zeros_for_moment(like) : Tensor();
      if (tensor.defined()) tensor.copy_(state_.at(name).to(tensor.device()));
    }
  }

 private:
  const StateDict& state_;
};

[[noreturn]] void refuse_first_step() {
  fail("cuda::Graph",
       "the first step of an optimizer cannot be captured, since each replay would begin its state anew", {},
       "let it take a step before the capture");
}

uint64_t next_id() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

}  // namespace

void StateVisitor::count(const std::string& name, Tensor& steps, const Tensor& parameter) {
  int64_t value = steps.defined() ? steps.item<int64_t>() : 0;
  const int64_t before = value;
  number(name, value);
  if (value == before) return;
  if (!steps.defined()) steps = zeros_for_count(parameter);
  steps.fill_(value);
}

StateDict save_state(const std::function<void(StateVisitor&)>& visit) {
  const NoGradGuard guard;
  Saver saver;
  visit(saver);
  return saver.state;
}

void load_state(const std::function<void(StateVisitor&)>& visit, const StateDict& state) {
  Checker checker(state);
  visit(checker);
  checker.finish();
  const NoGradGuard guard;
  Loader loader(state);
  visit(loader);
}

Optimizer::Optimizer(std::vector<Tensor> parameters) : parameters_(std::move(parameters)), id_(next_id()) {
  if (parameters_.empty()) fail("Optimizer", "got an empty parameter list");
  std::unordered_set<const TensorImpl*> seen;
  std::unordered_set<const void*> memory;
  for (const Tensor& parameter : parameters_) {
    if (!parameter.defined()) fail("Optimizer", "a parameter is undefined");
    if (!parameter.is_leaf())
      fail("Optimizer", "cannot optimize a tensor that is no leaf", {{"parameter", parameter}});
    if (!is_floating(parameter.dtype()))
      fail("Optimizer", "a parameter must be floating", {{"parameter", parameter}});
    if (!seen.insert(parameter.impl()).second) {
      fail("Optimizer", "a parameter is listed twice, or in two groups", {{"parameter", parameter}});
    }
    // Parameters are updated side by side.
    if (parameter.numel() > 0 && !memory.insert(parameter.view_of_memory().data).second) {
      fail("Optimizer", "a parameter shares its memory with another", {{"parameter", parameter}},
           "let one tensor be the parameter in both places");
    }
  }
}

void Optimizer::zero_grad(bool set_to_none) {
  if (set_to_none) {
    for (Tensor parameter : parameters_) parameter.set_grad({});
    return;
  }
  std::vector<Tensor> grads;
  for (const Tensor& parameter : parameters_) {
    if (parameter.grad().defined()) grads.push_back(parameter.grad().detach());
  }
  for (const Tensor& grad : grads) ops::check_writable("zero_grad", grad, false);
  for (const auto& [device, views] : views_by_device(grads)) kernels(device).zero(views);
  for (const Tensor& grad : grads) grad.bump_version();
  for (Tensor parameter : parameters_) {
    if (parameter.grad().defined()) parameter.set_grad(parameter.grad().detach());  // without its history
  }
}

StateDict Optimizer::state_dict() {
  return save_state([this](StateVisitor& visitor) { visit_state(visitor); });
}

void Optimizer::load_state_dict(const StateDict& state) {
  load_state([this](StateVisitor& visitor) { visit_state(visitor); }, state);
}

bool LossScale::skips_step_now() const {
  return found_inf.defined() && in_host_memory(found_inf.device()) && skips_step();
}

StepState UnscalingOptimizer::Numbers::state() const {
  return {rate.view_of_memory(), view_or_none(loss_scale.scale), view_or_none(loss_scale.found_inf)};
}

UnscalingOptimizer::Numbers UnscalingOptimizer::numbers_on(const Device& device, size_t group,
                                                           const LossScale& loss_scale) {
  return {rate_on(device, group), loss_scale.to(device)};
}

View UnscalingOptimizer::begin_change(const Tensor& parameter, const LossScale& loss_scale) {
  const Tensor cast = cast_to_write(parameter);
  parameter.bump_version();
  if (loss_scale.scale.defined()) parameter.grad().bump_version();
  if (!cast.defined()) return {};
  keep_cast(parameter, cast);
  return cast.view_of_memory();
}

void UnscalingOptimizer::write(Rate& rate) const {
  const double value = learning_rate(rate.group);
  if (value == rate.value) return;
  rate.tensor.fill_(value);
  rate.value = value;
}

Tensor UnscalingOptimizer::rate_on(const Device& device, size_t group) {
  auto found = std::ranges::find_if(
      rates_, [&](const auto& rate) { return rate->device == device && rate->group == group; });
  if (is_capturing(device)) {
    if (found == rates_.end()) refuse_first_step();
    backend(device).at_replay(device.index, [this, alive = std::weak_ptr(alive_), rate = found->get()] {
      if (!alive.expired()) write(*rate);
    });
    return (*found)->tensor;
  }
  if (found == rates_.end()) {
    const double value = learning_rate(group);
    found = rates_.insert(
        found, std::make_unique<Rate>(
                   Rate{device, group, value, full({}, value, {.dtype = float64, .device = device})}));
  }
  write(**found);
  return (*found)->tensor;
}

void check_not_first(const Tensor& parameter) {
  if (is_capturing(parameter.device())) refuse_first_step();
}

Tensor zeros_for_moment(const Tensor& parameter) {
  const bool dense = is_dense(parameter.shape(), parameter.strides());
  Tensor moment =
      empty_strided(parameter.shape(), dense ? parameter.strides() : contiguous_strides(parameter.shape()),
                    compute_type(parameter.dtype()), parameter.device());
  return moment.zero_();
}

Tensor zeros_for_count(const Tensor& parameter) {
  return zeros({}, {.dtype = int64, .device = parameter.device()});
}

}  // namespace mezzo::optim
