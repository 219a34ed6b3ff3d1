// A struct of tensor/pointwise.h as an op: everything but its formulas.
#pragma once

#include "autograd/call.h"
#include "autograd/ops.h"
#include "tensor/pointwise_traits.h"

namespace mezzo::ops {

/// What a pointwise op on these operands makes, and how; throws Error if they do not go together.
struct PointwisePlan {
  Shape shape;
  DType dtype;    ///< of the result
  DType compute;  ///< that the formula runs in
  Device device;  ///< that it runs on
};
PointwisePlan plan_pointwise(std::string_view op, Inputs in, pointwise::Result result, bool first_selects);

/// Throws Error for bool operands of an op that has no meaning for them, and for an integer operand that
/// holds what the op refuses.
void refuse_bool(std::string_view op, Inputs in);
void refuse_values(std::string_view op, pointwise::Refused refused, const Tensor& b);

/// Allocates the result, in the layout of the first operand of its shape, and runs the kernel.
Tensor run_pointwise(const PointwisePlan& plan, Inputs in, PointwiseKernel kernel);
/// The same into `out`.
void run_pointwise_into(const Tensor& out, DType compute, Inputs in, PointwiseKernel kernel);

/// The device that an op on these inputs runs on: that of the first that is not a number, and if there is one
/// not a 0-d tensor of the CPU's either.
Device device_of(Inputs in);

template <class S>
struct Pointwise {
  static constexpr OpId id = id_of<S>;
  static constexpr size_t arity = S::arity;
  static constexpr bool mixes_numbers = true;

  PointwisePlan check(Inputs in) const {
    const PointwisePlan plan = plan_pointwise(info(id).name, in, S::result, S::first_selects);
    if constexpr (!S::takes_bool) refuse_bool(info(id).name, in);
    if constexpr (S::refused != pointwise::Refused::nothing) {
      if (!is_floating(plan.compute)) refuse_values(info(id).name, S::refused, in[1]);
    }
    return plan;
  }

  Tensor forward(Inputs in, Saver& save, const PointwisePlan& plan) const {
    const Tensor out = run_pointwise(plan, in, kernels(plan.device).pointwise[pointwise::index<S>].value);
    save_for_backward(in, out, save);
    return out;
  }

  /// What the slopes that are wanted read: for a unary op the one tensor, else the operands, undefined where
  /// unread.
  void save_for_backward(Inputs in, const Tensor& out, Saver& save) const {
    const unsigned read = wanted_reads(save);
    if constexpr (arity == 1) {
      if (read & pointwise::first) save(in[0]);
      if (read & pointwise::output) save(out);
    } else {
      for (size_t k = 0; read && k < arity; ++k) save(read >> k & 1u ? in[k] : Tensor());
    }
  }

  /// What the slopes that are wanted read; `wants` is a Saver or a Node.
  template <class Wants>
  static unsigned wanted_reads(const Wants& wants) {
    unsigned read = 0;
    each_operand([&]<int i>() { read |= wants.needs(i) ? pointwise::reads<S, i> : 0u; });
    return read;
  }

  Tensors backward(Node& node, Inputs g) const {
    Tensors saved, grads(arity);
    for (size_t k = 0; k < node.saved_count(); ++k) saved.push_back(node.saved(k));
    each_operand([&]<int i>() {
      if (node.needs(i)) grads[i] = gradient<i>(g[0], saved);
    });
    return grads;
  }

 private:
  template <class F>
  static void each_operand(F f) {
    [&]<size_t... i>(std::index_sequence<i...>) { (f.template operator()<static_cast<int>(i)>(), ...); }
    (std::make_index_sequence<arity>());
  }

  template <int i>
  static Tensor gradient(const Tensor& g, const Tensors& saved) {
    if constexpr (!pointwise::differentiable<S, i>) {
      return {};
    } else if constexpr (constant_one<i>()) {
      return g;
    } else {
      // A slope reads some of what was saved: the rest is left out, so that nothing is converted or loaded in
      // vain.
      constexpr unsigned read = pointwise::reads<S, i>;
      Tensors x(arity);
      for (size_t k = 0; k < saved.size(); ++k) {
        if (arity == 1 || (read >> k & 1u)) x[k] = saved[k];
      }
      return slope(pointwise::index<S>, i, g, x);
    }
  }

  /// True if slope i is the number 1: the gradient passes as it is.
  template <int i>
  static constexpr bool constant_one() {
    if constexpr (pointwise::reads<S, i> != pointwise::nothing)
      return false;
    else
      return []<size_t... k>(std::index_sequence<k...>) {
        return pointwise::slope<S, i>((static_cast<void>(k), 1.0)...) == 1.0;
      }
    (std::make_index_sequence<arity>());
  }
};

}  // namespace mezzo::ops
