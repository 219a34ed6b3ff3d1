// The path that every op takes: check, forward, and, while recording, a Node that holds what the op saves.
//
// An op is a struct. Its members are the call's options; its functions are
//   void check(Inputs in) const                   throws before anything is touched; may be left out. What it
//                                                 returns, if anything, forward gets as a third argument
//   Tensor forward(Inputs in, Saver& save) const  computes; save(x) keeps x for backward
//   Tensors backward(Node& node, Inputs g) const  gradients of the inputs from those of the outputs:
//   node.saved(i) is
//                                                 what was saved, node.needs(i) whether anybody wants
//                                                 gradient i
// forward may return a std::array of Tensors. Backward is written in ops, so it can be differentiated again.
// An op of the table names its row (`static constexpr OpId id`), a user's op itself (`static constexpr auto
// name`) and, if it wishes, the dtype that autocast casts its inputs to (`static constexpr DType
// cast_inputs`).
#pragma once

#include <array>
#include <concepts>

#include "autograd/cast_hook.h"
#include "autograd/grad_mode.h"
#include "autograd/node.h"
#include "autograd/op_info.h"

namespace mezzo {

/// What forward says it saves. Without a node (not recording) saving costs nothing.
class Saver {
 public:
  explicit Saver(const std::shared_ptr<Node>& node) : node_(node) {}
  bool recording() const { return node_ != nullptr; }
  /// Whether somebody will want the gradient of input i.
  bool needs(size_t input) const { return node_ && node_->needs(input); }
  void operator()(const Tensor& tensor) {
    if (node_) kept_.push_back(tensor);
  }
  /// Hands what was kept to the node, knowing the outputs by now, which are not attached to it yet.
  void finish(Inputs outputs);

 private:
  const std::shared_ptr<Node>& node_;
  Tensors kept_;
};

template <class Op>
constexpr std::string_view name_of() {
  if constexpr (requires { Op::id; })
    return info(Op::id).name;
  else
    return Op::name;
}

template <class Op>
constexpr Order order_of() {
  if constexpr (requires { Op::id; })
    return info(Op::id).order;
  else
    return Order::Twice;
}

template <class Op>
class OpNode : public Node {
 public:
  explicit OpNode(const Op& op) : op_(op) {}
  std::string_view name() const override { return name_of<Op>(); }
  Tensors backward(Inputs grads) override {
    if constexpr (order_of<Op>() == Order::Once) {
      Tensors result = [&] {
        NoGradGuard guard;
        return op_.backward(*this, grads);
      }();
      if (grad_enabled()) refuse_second_derivative(name(), result);
      return result;
    } else {
      return op_.backward(*this, grads);
    }
  }

 private:
  Op op_;
};

/// True for an op of the table, false for a user's own.
template <class Op>
inline constexpr bool in_table = requires {
  Op::id;
};

/// A user's op runs under the cast hook of its call, forward and backward: its ops are cast as if they stood
/// there.
template <class Op>
class CustomOpNode final : public OpNode<Op> {
 public:
  using OpNode<Op>::OpNode;
  Tensors backward(Inputs grads) override {
    const CastHookGuard guard(hook_);
    return OpNode<Op>::backward(grads);
  }

 private:
  std::shared_ptr<const CastHook> hook_ = cast_hook();
};

/// True if an op on these inputs is to be recorded: recording is on and one of them requires grad.
bool wants_record(Inputs inputs);
/// Throws Error if x is a view whose history ended with a change in place of what it is a view of.
void check_history(std::string_view op, const Tensor& x);
/// The same for each of the inputs, and if they are on different devices. With `mixes_numbers` a 0-d tensor
/// in the CPU's memory goes with tensors of any device, as a number does.
void check_inputs(std::string_view op, Inputs inputs, bool mixes_numbers = false);
/// Throws what a device said as the Error of the op that ran.
[[noreturn]] void fail_on_device(std::string_view op, Inputs inputs, const DeviceError& error);
/// Gives `node` its edges.
void connect(Node& node, Inputs inputs);
/// Where forward returned one of its inputs: the same elements under a handle that can have a history of its
/// own.
void separate(Tensor& output, Inputs inputs);
/// Makes `output` the next output of `node`. Takes the handle, since counting one more is a locked
/// instruction.
void attach(std::shared_ptr<Node> node, const Tensor& output);

/// Runs an op on checked inputs; `checked` is what its check returned, if it did. Returns what its forward
/// returns.
template <class Op, class... Checked>
auto run_checked(const Op& op, Inputs inputs, const Checked&... checked) {
  std::shared_ptr<Node> node;
  if constexpr (order_of<Op>() != Order::NoGrad) {
    if (wants_record(inputs)) {
      node = make_pooled<std::conditional_t<in_table<Op>, OpNode<Op>, CustomOpNode<Op>>>(op);
      connect(*node, inputs);
    }
  }
  Saver save(node);
  auto result = [&] {
    NoGradGuard guard;  // ops that forward is composed of leave no nodes of their own
    return op.forward(inputs, save, checked...);
  }();
  if (!node) return result;

  std::span<Tensor> outputs;
  if constexpr (std::same_as<decltype(result), Tensor>)
    outputs = {&result, 1};
  else
    outputs = result;
  for (Tensor& output : outputs) separate(output, inputs);
  save.finish(outputs);
  for (Tensor& output : outputs) attach(&output == &outputs.back() ? std::move(node) : node, output);
  return result;
}

/// Runs an op on inputs that are cast by now.
template <class Op>
auto run_op(const Op& op, Inputs inputs) {
  if constexpr (!requires { op.check(inputs); }) {
    return run_checked(op, inputs);
  } else if constexpr (std::is_void_v<decltype(op.check(inputs))>) {
    op.check(inputs);
    return run_checked(op, inputs);
  } else {
    return run_checked(op, inputs, op.check(inputs));
  }
}

/// Runs an op, its inputs cast first if a hook is set. What the op is made of is not cast again, but for a
/// user's op that names no dtype.
template <class Op>
auto call(Op op, Inputs inputs) try {
  check_inputs(
      name_of<Op>(), inputs, requires { Op::mixes_numbers; });
  const CastHook* const hook = cast_hook().get();  // kept by the guard that set it
  if (!hook) return run_op(op, inputs);
  if constexpr (in_table<Op> || requires { Op::cast_inputs; }) {
    const Tensors cast = [&] {
      if constexpr (!in_table<Op>)
        return hook->cast_inputs(inputs, Op::cast_inputs);
      else if constexpr (requires { op.dtype.value(); })
        return hook->cast_inputs(Op::id, inputs, &op.dtype);
      else
        return hook->cast_inputs(Op::id, inputs, nullptr);
    }();
    const CastHookGuard masked(nullptr);
    return run_op(op, cast);
  } else {
    return run_op(op, inputs);
  }
} catch (const DeviceError& error) {
  fail_on_device(name_of<Op>(), inputs, error);
}

template <class Op, std::same_as<Tensor>... T>
auto call(const Op& op, const T&... inputs) {
  const std::array<Tensor, sizeof...(inputs)> list{inputs...};
  return call(op, Inputs(list));
}

}  // namespace mezzo
