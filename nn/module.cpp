#include "nn/module.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <ostream>
#include <typeinfo>
#include <unordered_set>

#include "autograd/grad_mode.h"

namespace mezzo::nn {

namespace {

/// "mezzo::nn::Conv2d" as "Conv2d".
std::string type_name(const Module& module) {
  int status = 0;
  char* demangled = abi::__cxa_demangle(typeid(module).name(), nullptr, nullptr, &status);
  std::string name = status == 0 ? demangled : typeid(module).name();
  std::free(demangled);
  const auto scope = name.rfind("::", name.find('<'));
  return scope == std::string::npos ? name : name.substr(scope + 2);
}

/// Tensors under their first names: one with two names is one tensor.
void append_new(NamedTensors& all, std::unordered_set<const TensorImpl*>& seen, const std::string& name,
                const Tensor& value) {
  if (value.defined() && seen.insert(value.impl()).second) all.emplace_back(name, value);
}

void replace(Tensor& value, const Tensor& by) {
  if (by.defined()) value = by;
}

/// grad_input after the hooks.
Tensor run_hooks(const Hooks<BackwardHook>& hooks, Tensor grad_input, const Tensor& grad_output) {
  for (const auto& hook : hooks.list()) replace(grad_input, (*hook)(grad_input, grad_output));
  return grad_input;
}

/// y for the caller, so that backward gives `hooks` the gradients of y and of x.
Tensor watched(const Hooks<BackwardHook>& hooks, Tensor x, const Tensor& y) {
  Tensor output = y.expand(y.shape());
  if (!x.requires_grad()) {
    output.register_hook([hooks](const Tensor& grad_output) {
      if (run_hooks(hooks, {}, grad_output).defined())
        fail("register_full_backward_hook", "a hook replaced the gradient of an input that requires none");
      return Tensor();
    });
    return output;
  }
  const auto grad_output = std::make_shared<Tensor>();
  output.register_hook([grad_output](const Tensor& grad) {
    *grad_output = grad;
    return Tensor();
  });
  x.register_hook([hooks, grad_output](const Tensor& grad) {
    return run_hooks(hooks, grad, std::exchange(*grad_output, {}));
  });
  return output;
}

std::string joined(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "." + name;
}

}  // namespace

struct Module::State {
  std::string name;  ///< in the module that it was added to
  NamedTensors parameters, buffers;
  std::vector<std::pair<std::string, std::shared_ptr<Module>>> children;
  bool training = true;
  Hooks<ForwardPreHook> pre_hooks;
  Hooks<ForwardHook> forward_hooks;
  Hooks<BackwardHook> backward_hooks;
};

Module::Module() : state_(std::make_shared<State>()) {}

Tensor Module::operator()(const Tensor& input) {
  const ModuleScope scope(state_->name);
  Tensor x = input;
  for (const auto& hook : state_->pre_hooks.list()) replace(x, (*hook)(x));
  const bool watch = grad_enabled() && !state_->backward_hooks.empty();
  if (watch && x.requires_grad()) x = x.expand(x.shape());  // a tensor of this call alone, as the output
  Tensor y = forward(x);
  for (const auto& hook : state_->forward_hooks.list()) replace(y, (*hook)(x, y));
  return watch && y.requires_grad() ? watched(state_->backward_hooks, x, y) : y;
}

Tensor Module::forward(const Tensor& x) {
  fail(type_name(*this), "has no forward for one tensor", {{"input", x}},
       "declare Tensor forward(const Tensor&), not const, or call the module's own forward");
}

void Module::visit(const std::string& prefix,
                   const std::function<void(const std::string&, const Module&)>& f) const {
  f(prefix, *this);
  for (const auto& [name, child] : state_->children) child->visit(joined(prefix, name), f);
}

NamedTensors Module::named_parameters() const {
  NamedTensors all;
  std::unordered_set<const TensorImpl*> seen;
  visit("", [&](const std::string& prefix, const Module& module) {
    for (const auto& [name, value] : module.state_->parameters)
      append_new(all, seen, joined(prefix, name), value);
  });
  return all;
}

std::vector<Tensor> Module::parameters() const {
  std::vector<Tensor> all;
  for (const auto& [name, value] : named_parameters()) all.push_back(value);
  return all;
}

NamedTensors Module::named_buffers() const {
  NamedTensors all;
  std::unordered_set<const TensorImpl*> seen;
  visit("", [&](const std::string& prefix, const Module& module) {
    for (const auto& [name, value] : module.state_->buffers)
      append_new(all, seen, joined(prefix, name), value);
  });
  return all;
}

const std::vector<std::pair<std::string, std::shared_ptr<Module>>>& Module::children() const {
  return state_->children;
}

const std::string& Module::name() const { return state_->name; }

HookHandle Module::register_forward_pre_hook(ForwardPreHook hook) {
  return state_->pre_hooks.add(std::move(hook));
}
HookHandle Module::register_forward_hook(ForwardHook hook) {
  return state_->forward_hooks.add(std::move(hook));
}
HookHandle Module::register_full_backward_hook(BackwardHook hook) {
  return state_->backward_hooks.add(std::move(hook));
}

bool Module::has_hooks() const {
  return !state_->pre_hooks.empty() || !state_->forward_hooks.empty() || !state_->backward_hooks.empty();
}

void Module::apply(const std::function<void(Module&)>& f) {
  for (const auto& [name, child] : state_->children) child->apply(f);
  f(*this);
}

Module& Module::train(bool training) {
  apply([training](Module& module) { module.state_->training = training; });
  return *this;
}

bool Module::is_training() const { return state_->training; }

Module& Module::requires_grad_(bool requires_grad) {
  for (Tensor& parameter : parameters()) parameter.requires_grad_(requires_grad);
  return *this;
}

void Module::zero_grad() {
  for (Tensor& parameter : parameters()) parameter.set_grad({});
}

void Module::convert(const std::function<Tensor(const Tensor&)>& f) {
  const auto change = [&f](Tensor value) {
    const Tensor data = f(value.detach()), gradient = value.grad().defined() ? f(value.grad()) : Tensor();
    value.set_grad({});
    value.set_data(data);
    value.set_grad(gradient);
  };
  for (const Tensor& parameter : parameters()) change(parameter);
  for (const auto& [name, buffer] : named_buffers()) change(buffer);
}

Module& Module::to(DType dtype) {
  if (!is_floating(dtype)) fail("to", text("modules compute in floating dtypes, not ", name_of(dtype)));
  convert([dtype](const Tensor& x) { return is_floating(x.dtype()) ? x.to(dtype) : x; });
  return *this;
}

Module& Module::to(const Device& device) {
  convert([&device](const Tensor& x) { return x.to(device); });
  return *this;
}

Module& Module::to(MemoryFormat format) {
  convert([format](const Tensor& x) { return x.dim() == 4 ? x.to(format) : x; });
  return *this;
}

StateDict Module::state_dict() const {
  StateDict state;
  visit("", [&](const std::string& prefix, const Module& module) {
    for (const NamedTensors* list : {&module.state_->parameters, &module.state_->buffers}) {
      for (const auto& [name, value] : *list) {
        if (value.defined()) state.insert(joined(prefix, name), value.detach());
      }
    }
  });
  return state;
}

void Module::load_state_dict(const StateDict& state) {
  const StateDict own = state_dict();
  std::string problems;
  const auto add_problem = [&](const std::string& problem) {
    problems += (problems.empty() ? "" : ", ") + problem;
  };
  for (const auto& [name, value] : own) {
    if (!state.contains(name)) {
      add_problem("missing " + name);
    } else if (state.at(name).shape() != value.shape()) {
      add_problem(text("wrong shape ", name, ' ', mezzo::to_string(state.at(name).shape()), " for ",
                       mezzo::to_string(value.shape())));
    }
  }
  for (const auto& [name, value] : state) {
    if (!own.contains(name)) add_problem("unexpected " + name);
  }
  if (!problems.empty()) fail("load_state_dict", problems);
  const NoGradGuard guard;
  for (const auto& [name, value] : own) Tensor(value).copy_(state.at(name).to(value.device()));
}

void Module::add_child(const std::string& name, std::shared_ptr<Module> child) {
  check_new_name("add", name);
  child->visit("", [this](const std::string&, const Module& below) {
    if (below.state_ == state_) fail("add", "a module cannot be part of itself");
  });
  child->state_->name = name;
  state_->children.emplace_back(name, std::move(child));
}

Tensor Module::add_parameter(const std::string& name, Tensor value) {
  check_new_name("add_parameter", name);
  if (value.defined()) value.requires_grad_();
  state_->parameters.emplace_back(name, value);
  return value;
}

Tensor Module::add_buffer(const std::string& name, Tensor value) {
  check_new_name("add_buffer", name);
  state_->buffers.emplace_back(name, value);
  return value;
}

void Module::check_new_name(std::string_view op, const std::string& name) const {
  if (name.empty() || name.find('.') != std::string::npos) {
    fail(op, text('"', name, "\" is no name: it must not be empty or contain a dot"));
  }
  const auto taken = [&name](const auto& entries) {
    return std::ranges::any_of(entries, [&name](const auto& entry) { return entry.first == name; });
  };
  if (taken(state_->children) || taken(state_->parameters) || taken(state_->buffers)) {
    fail(op, text("there is a \"", name, "\" already"));
  }
}

std::string Module::to_string() const {
  const std::string about = extra();
  std::string out = type_name(*this) + "(";
  if (state_->children.empty()) return out + about + ")";
  if (!about.empty()) out += "\n  " + about;
  for (const auto& [name, child] : state_->children) {
    out += "\n  (" + name + "): ";
    for (char c : child->to_string()) out += c == '\n' ? std::string("\n  ") : std::string(1, c);
  }
  return out + "\n)";
}

std::ostream& operator<<(std::ostream& out, const Module& module) { return out << module.to_string(); }

}  // namespace mezzo::nn
