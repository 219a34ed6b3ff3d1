// Optimizer: what updates parameters from their gradients. Derive from it to write one:
//
//   struct SignDescent : optim::Optimizer {
//     explicit SignDescent(std::vector<Tensor> parameters) : Optimizer(std::move(parameters)) {}
//     void step() override {
//       NoGradGuard guard;
//       for (Tensor p : parameters()) {
//         if (p.grad().defined()) p.sub_(where(p.grad() > 0, 0.01, -0.01));
//       }
//     }
//   };
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tensor/state_dict.h"
#include "tensor/tensor.h"

namespace mezzo {
struct StepState;  // tensor/kernels.h
struct View;
}  // namespace mezzo

namespace mezzo::optim {

/// Goes over everything that an optimizer saves: one walk serves saving, checking and loading.
class StateVisitor {
 public:
  virtual ~StateVisitor() = default;
  virtual void number(const std::string& name, double& value) = 0;
  virtual void number(const std::string& name, int64_t& value) = 0;
  virtual void number(const std::string& name, bool& value) = 0;
  /// A count of steps that lies where `parameter` does, 0-d int64; undefined: 0.
  void count(const std::string& name, Tensor& steps, const Tensor& parameter);

  struct Slot {
    std::string name;
    Tensor& tensor;
  };
  /// Tensors of `like`'s shape that are there together; undefined: not (yet).
  virtual void tensors(std::initializer_list<Slot> slots, const Tensor& like) = 0;
};

/// A copy of everything that `visit` goes over; numbers become 0-d float64, int64 or bool tensors.
StateDict save_state(const std::function<void(StateVisitor&)>& visit);
/// The reverse. Throws Error that lists every missing, unexpected and misshapen key, and then changes
/// nothing.
void load_state(const std::function<void(StateVisitor&)>& visit, const StateDict& state);

class Optimizer {
 public:
  /// Throws Error for an empty list, a tensor that is no leaf or not floating, and one that is listed twice
  /// or shares its memory with another.
  explicit Optimizer(std::vector<Tensor> parameters);
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Changes each parameter that has a gradient, in place.
  virtual void step() = 0;
  /// Forgets the gradients (the next backward makes new ones), or fills them with zeros.
  void zero_grad(bool set_to_none = true);
  /// All parameters, of all groups.
  const std::vector<Tensor>& parameters() const { return parameters_; }
  /// A number that no other optimizer has had, as an address may.
  uint64_t id() const { return id_; }

  /// `state.<parameter>.<name>` and `group.<group>.<name>`, by save_state and load_state.
  StateDict state_dict();
  void load_state_dict(const StateDict& state);

 protected:
  /// Names everything to be saved; an optimizer without state leaves it as it is.
  virtual void visit_state(StateVisitor&) {}

 private:
  std::vector<Tensor> parameters_;
  uint64_t id_;
};

/// What amp::GradScaler tells an optimizer that unscales by itself: 0-d float32 tensors on one device.
struct LossScale {
  Tensor found_inf;  ///< not 0: a gradient is not finite, and the step must change nothing
  Tensor scale;      ///< gradients hold it, and the step takes it out of them; undefined: they do not
  /// Reads the flag, so the host waits for it.
  bool skips_step() const { return found_inf.defined() && found_inf.item<float>() != 0; }
  /// Whether the step is known to change nothing, without waiting: the flag is in the CPU's memory.
  bool skips_step_now() const;
  LossScale to(const Device& device) const {
    return {found_inf.defined() ? found_inf.to(device) : found_inf,
            scale.defined() ? scale.to(device) : scale};
  }
};

/// An optimizer that unscales gradients and updates parameters in one pass over memory; for any other one
/// amp::GradScaler unscales before. step() is final so that none overrides the one and forgets the other.
class UnscalingOptimizer : public Optimizer {
 public:
  using Optimizer::Optimizer;
  void step() final { step({}); }
  virtual void step(const LossScale& loss_scale) = 0;

 protected:
  /// A kernel is about to change the parameter, and its gradient if that holds a scale: counted as a change
  /// of both. Returns the 16-bit cast that autocast keeps with the parameter, which the kernel then writes
  /// too.
  static View begin_change(const Tensor& parameter, const LossScale& loss_scale);
  virtual double learning_rate(size_t group) const = 0;
  /// What a step's kernel reads on its device: views of these tensors, so they must live until it is called.
  struct Numbers {
    Tensor rate;
    LossScale loss_scale;
    StepState state() const;
  };
  /// Throws Error if a capture is the first to ask for a group's learning rate.
  Numbers numbers_on(const Device& device, size_t group, const LossScale& loss_scale);

 private:
  /// A group's learning rate where kernels of `device` read it, 0-d float64. A step that is captured in a
  /// graph finds there, at each replay, the rate that the options have then.
  Tensor rate_on(const Device& device, size_t group);

  struct Rate {
    Device device;
    size_t group;
    double value;
    Tensor tensor;
  };
  void write(Rate& rate) const;

  std::vector<std::unique_ptr<Rate>> rates_;
  std::shared_ptr<const bool> alive_ = std::make_shared<bool>();  ///< for graphs, which may outlive it
};

/// Throws Error if a capture is the first to need the state of `parameter`: each replay would begin it anew.
void check_not_first(const Tensor& parameter);

/// Parameters with options of their own.
template <class Options>
struct Group {
  std::vector<Tensor> parameters;
  Options options;
};

/// The parameters of all groups, one after the other.
template <class Options>
std::vector<Tensor> all_parameters(const std::vector<Group<Options>>& groups) {
  std::vector<Tensor> all;
  for (const auto& group : groups) all.insert(all.end(), group.parameters.begin(), group.parameters.end());
  return all;
}

/// Calls f(i, parameter, options) for each parameter that has a gradient, the i-th of all groups.
template <class Options, class F>
void for_gradients(const std::vector<Group<Options>>& groups, F&& f) {
  size_t i = 0;
  for (const auto& group : groups) {
    for (const Tensor& parameter : group.parameters) {
      if (parameter.grad().defined()) f(i, parameter, group.options);
      ++i;
    }
  }
}

/// Zeros for a running average of `parameter`'s gradient: its layout, float32 if it is 16-bit.
Tensor zeros_for_moment(const Tensor& parameter);
/// 0, for a count of `parameter`'s steps.
Tensor zeros_for_count(const Tensor& parameter);

/// Lets `visit` save or load a parameter's state, which it returns true for if there is one. A state that no
/// step has entered, since all were skipped, is as good as none: it is not shown, and stays, as a graph may
/// work in it.
template <class State, class F>
void visit_begun(State& state, const Tensor& steps, F&& visit) {
  const bool begun = steps.defined() && steps.item<int64_t>() > 0;
  State shown = begun ? state : State{};
  if (visit(shown) || begun) state = shown;
}

}  // namespace mezzo::optim
