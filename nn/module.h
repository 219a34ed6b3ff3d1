// Module: a piece of a network with named parameters, buffers and children. A module, like a tensor, is a
// small handle: a copy shares parameters, buffers, children and mode.
//
//   struct Net : nn::Module {
//     nn::Linear hidden = add("hidden", nn::Linear(2, 16)), out = add("out", nn::Linear(16, 1));
//     Tensor forward(const Tensor& x) { return out(relu(hidden(x))); }
//   };
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tensor/state_dict.h"
#include "tensor/tensor.h"

namespace mezzo::nn {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

/// What hooks on modules see; each may return what is to replace its first argument (a ForwardHook: the
/// output). An undefined Tensor keeps it.
using ForwardPreHook = std::function<Tensor(const Tensor& input)>;
using ForwardHook = std::function<Tensor(const Tensor& input, const Tensor& output)>;
using BackwardHook = std::function<Tensor(const Tensor& grad_input, const Tensor& grad_output)>;

class Module {
 public:
  Module();
  virtual ~Module() = default;

  /// Runs the module: sets the path that errors name, then calls forward between the hooks. Several threads
  /// may call one module at once, unless its forward changes it (BatchNorm in training).
  Tensor operator()(const Tensor& x);
  /// What the module computes. A module whose forward takes something else than one tensor declares its own,
  /// and says `using Module::forward;` so that compilers do not warn of the hidden one.
  virtual Tensor forward(const Tensor& x);
  /// What follows the type's name in print: "2, 256, kernel_size=1".
  virtual std::string extra() const { return ""; }

  // --- contents; names of nested ones are joined with dots, as in PyTorch. What is
  // shared comes once, under its first name.
  NamedTensors named_parameters() const;
  std::vector<Tensor> parameters() const;
  NamedTensors named_buffers() const;
  const std::vector<std::pair<std::string, std::shared_ptr<Module>>>& children() const;
  /// Its name in the module that it was added to; "" if it was added to none.
  const std::string& name() const;
  /// Calls f on this module and on all below it, children first.
  void apply(const std::function<void(Module&)>& f);

  // --- hooks of the call on one tensor; copies share them, and several run in their order
  HookHandle register_forward_pre_hook(ForwardPreHook hook);
  HookHandle register_forward_hook(ForwardHook hook);
  /// Runs in backward when the gradients of output and input are complete; grad_input is undefined, and
  /// cannot be replaced, where the input requires no grad. While there is such a hook, neither input nor
  /// output may be changed in place.
  HookHandle register_full_backward_hook(BackwardHook hook);
  /// Whether there is a hook of any kind.
  bool has_hooks() const;

  // --- mode
  /// Training or evaluation, for this module and all below it: BatchNorm uses batch or running statistics.
  Module& train(bool training = true);
  Module& eval() { return train(false); }
  bool is_training() const;
  /// Freezes (false) or thaws the parameters; a gradient that is there stays.
  Module& requires_grad_(bool requires_grad = true);
  /// Forgets the gradients of all parameters.
  void zero_grad();

  // --- dtype and device: parameters and buffers are changed in place, so optimizers and copies go on sharing
  // them.
  /// Converts floating parameters and buffers; integer ones stay.
  Module& to(DType dtype);
  Module& half() { return to(float16); }
  Module& bfloat16() { return to(DType::bfloat16); }
  Module& to(const Device& device);
  Module& cpu() { return to(Device()); }
  Module& cuda(int index = 0) { return to(Device(Device::Type::cuda, index)); }
  /// 4-d parameters in the given memory format.
  Module& to(MemoryFormat format);

  // --- files
  /// Parameters and buffers by name, sharing memory with the module. The keys are PyTorch's.
  StateDict state_dict() const;
  /// Copies values in. Throws Error that lists every missing, unexpected and misshapen key, and then changes
  /// nothing.
  void load_state_dict(const StateDict& state);

  /// The module as a tree, like PyTorch's print.
  std::string to_string() const;

 protected:
  /// Registers a child and returns a handle to it.
  template <class M>
  M add(const std::string& name, M module) {
    add_child(name, std::make_shared<M>(module));
    return module;
  }
  void add_child(const std::string& name, std::shared_ptr<Module> child);
  /// Registers a parameter (it requires grad from now on) and returns it. Undefined: the name is known but
  /// empty.
  Tensor add_parameter(const std::string& name, Tensor value);
  /// The same for a tensor that is saved but not trained.
  Tensor add_buffer(const std::string& name, Tensor value);

 private:
  struct State;
  std::shared_ptr<State> state_;

  void visit(const std::string& prefix,
             const std::function<void(const std::string&, const Module&)>& f) const;
  /// Throws Error unless parameters, buffers and children have no such name yet and it may be part of a path.
  void check_new_name(std::string_view op, const std::string& name) const;
  void convert(const std::function<Tensor(const Tensor&)>& f);
};

std::ostream& operator<<(std::ostream& out, const Module& module);

}  // namespace mezzo::nn
