// Changes in place. While recording, the changed tensor gets a new history, whose first input is what it was
// before.
#include "autograd/ops/inplace.h"
#include "autograd/ops/check.h"
#include "autograd/ops/pointwise_op.h"
#include "tensor/random.h"
#include "tensor/tensor_impl.h"

namespace mezzo {

using ops::apart_from;
using ops::check_writable;

namespace {

/// What x was before the change, for backward: a copy of its values that keeps its history.
Tensor before_change(const Tensor& x) {
  Tensor copy = [&] {
    NoGradGuard guard;
    return x.clone();
  }();
  copy.impl()->grad_fn = x.impl()->grad_fn;
  copy.impl()->output_index = x.impl()->output_index;
  return copy;
}

/// Throws Error if x = value(x, ...) does not go, in x's own memory and dtype.
template <class S>
ops::PointwisePlan check_change(std::string_view name, Inputs in) {
  const Tensor &x = in[0], b = in.size() > 1 ? in[1] : Tensor();
  check_writable(name, x, wants_record(in));
  check_inputs(name, in, true);
  const ops::PointwisePlan plan = ops::plan_pointwise(name, in, S::result, S::first_selects);
  if (plan.device != x.device()) {
    fail(name,
         text("the result is on ", to_string(plan.device), " and cannot be kept on ", to_string(x.device())),
         {{"tensor", x}, {"b", b}});
  }
  ops::Pointwise<S>{}.check(in);
  if (plan.shape != x.shape()) {
    fail(name, text("the result has shape ", to_string(plan.shape), " and does not fit in place"),
         {{"tensor", x}, {"b", b}});
  }
  if ((is_floating(plan.dtype) && !is_floating(x.dtype())) || (plan.dtype != bool_ && x.dtype() == bool_)) {
    fail(name, text("the result is ", name_of(plan.dtype), " and cannot be kept in ", name_of(x.dtype())),
         {{"tensor", x}, {"b", b}});
  }
  return plan;
}

/// x = value(x, operand...) in x's own memory and dtype.
template <class S, std::same_as<Tensor>... T>
Tensor& change(std::string_view name, Tensor& x, const T&... operand) {
  using Op = ops::Pointwise<S>;
  const std::array<Tensor, sizeof...(T) + 1> in{x, apart_from(x, operand)...};
  const ops::PointwisePlan plan = check_change<S>(name, in);

  std::shared_ptr<Node> node;
  Tensors operands(in.begin(), in.end());
  if (wants_record(in)) {
    node = make_pooled<OpNode<Op>>(Op{});
    connect(*node, in);
    if (Op::wanted_reads(*node) & pointwise::first) operands[0] = before_change(x);
  }
  Saver save(node);
  ops::run_pointwise_into(x, plan.compute, in, kernels(x.device()).pointwise[pointwise::index<S>].value);
  x.bump_version();
  if (node) {
    Op{}.save_for_backward(operands, x, save);
    x.impl()->storage->bump_rebases();
    save.finish({&x, 1});
    attach(std::move(node), x);
  }
  return x;
}

/// x clamped by a bound, if it is given: see clamp.
template <class ForNumber, class ForTensor>
void bound_by(Tensor& x, const Tensor& bound) {
  if (!bound.defined()) return;
  bound.impl()->is_number ? change<ForNumber>("clamp_", x, bound) : change<ForTensor>("clamp_", x, bound);
}

/// x = from, converted. The gradient goes to `from`; none to what x was.
struct CopyInPlace {
  static constexpr std::string_view name = "copy_";
  Tensors backward(Node&, Inputs g) const { return {{}, g[0]}; }
};

/// Runs `write` on x's memory; while recording x loses its history, since nothing of it is left.
template <class F>
Tensor& overwrite(std::string_view name, Tensor& x, F write) {
  check_writable(name, x, grad_enabled() && x.requires_grad());
  check_history(name, x);
  write(x.view_of_memory());
  x.bump_version();
  if (grad_enabled() && x.impl()->grad_fn) {
    x.impl()->storage->bump_rebases();
    x.impl()->grad_fn = nullptr;
  }
  return x;
}

}  // namespace

namespace ops {

void check_writable(std::string_view op, const Tensor& x, bool recorded) {
  if (!x.defined()) fail(op, "the tensor is undefined");
  for (int d = 0; d < x.dim(); ++d) {
    if (x.strides()[d] == 0 && x.shape()[d] > 1 && x.numel() > 0) {
      fail(op, "several elements of the tensor share one place in memory", {{"tensor", x}},
           "clone() the expanded tensor first");
    }
  }
  if (grad_enabled() && x.is_leaf() && x.requires_grad()) {
    fail(op, "a leaf that requires grad is changed in place", {{"tensor", x}}, "do it under a NoGradGuard");
  }
  if (recorded && x.impl()->is_view) {
    fail(op, "a view is changed in place in a recorded op", {{"view", x}},
         "change the tensor that it is a view of, or a clone of the view");
  }
}

Tensor apart_from(const Tensor& x, const Tensor& b) {
  const bool shared = x.defined() && b.defined() && x.impl()->storage == b.impl()->storage;
  return shared ? b.clone() : b;
}

}  // namespace ops

Tensor& Tensor::add_(const Tensor& b) { return change<pointwise::Add>("add_", *this, b); }
Tensor& Tensor::sub_(const Tensor& b) { return change<pointwise::Sub>("sub_", *this, b); }
Tensor& Tensor::mul_(const Tensor& b) { return change<pointwise::Mul>("mul_", *this, b); }
Tensor& Tensor::div_(const Tensor& b) { return change<pointwise::Div>("div_", *this, b); }

Tensor& Tensor::floor_divide_(const Tensor& b) {
  return change<pointwise::FloorDivide>("floor_divide_", *this, b);
}
Tensor& Tensor::remainder_(const Tensor& b) { return change<pointwise::Remainder>("remainder_", *this, b); }
Tensor& Tensor::fmod_(const Tensor& b) { return change<pointwise::Fmod>("fmod_", *this, b); }
Tensor& Tensor::pow_(const Tensor& b) { return change<pointwise::Pow>("pow_", *this, b); }

Tensor& Tensor::clamp_(const Tensor& low_bound, const Tensor& high_bound) {
  if (!low_bound.defined() && !high_bound.defined()) fail("clamp_", "needs a bound", {{"tensor", *this}});
  const Tensor low = ops::bound_in_range("clamp_", *this, low_bound, true),
               high = ops::bound_in_range("clamp_", *this, high_bound, false);
  // A high bound that is refused must be so before the low one has changed anything.
  if (high.defined()) check_change<pointwise::Minimum>("clamp_", std::array<Tensor, 2>{*this, high});
  bound_by<pointwise::ClampMin, pointwise::Maximum>(*this, low);
  bound_by<pointwise::ClampMax, pointwise::Minimum>(*this, high);
  return *this;
}

Tensor& Tensor::masked_fill_(const Tensor& mask, const Tensor& value) {
  check_writable("masked_fill_", *this, grad_enabled() && requires_grad());
  return copy_(masked_fill(mask, value));
}

Tensor& Tensor::neg_() { return change<pointwise::Neg>("neg_", *this); }
Tensor& Tensor::abs_() { return change<pointwise::Abs>("abs_", *this); }
Tensor& Tensor::exp_() { return change<pointwise::Exp>("exp_", *this); }
Tensor& Tensor::log_() { return change<pointwise::Log>("log_", *this); }
Tensor& Tensor::sqrt_() { return change<pointwise::Sqrt>("sqrt_", *this); }
Tensor& Tensor::tanh_() { return change<pointwise::Tanh>("tanh_", *this); }
Tensor& Tensor::sigmoid_() { return change<pointwise::Sigmoid>("sigmoid_", *this); }
Tensor& Tensor::relu_() { return change<pointwise::Relu>("relu_", *this); }
Tensor& Tensor::floor_() { return change<pointwise::Floor>("floor_", *this); }
Tensor& Tensor::ceil_() { return change<pointwise::Ceil>("ceil_", *this); }
Tensor& Tensor::round_() { return change<pointwise::Round>("round_", *this); }
Tensor& Tensor::trunc_() { return change<pointwise::Trunc>("trunc_", *this); }

Tensor& Tensor::copy_(const Tensor& from) {
  const std::array<Tensor, 2> in{*this, from};
  const bool recorded = wants_record(in);
  check_writable("copy_", *this, recorded);
  if (!from.defined()) fail("copy_", "the source is undefined", {{"tensor", *this}});
  for (const Tensor& x : in) check_history("copy_", x);
  Shape joint;
  if (!broadcast(from.shape(), shape(), joint) || joint != shape()) {
    fail("copy_", "the source does not broadcast to the tensor", {{"tensor", *this}, {"source", from}});
  }
  const Tensor source = apart_from(*this, from.detach()).expand(shape());
  copy_elements(*this, source);
  bump_version();
  if (recorded) {
    auto node = make_pooled<OpNode<CopyInPlace>>(CopyInPlace{});
    connect(*node, in);
    impl_->storage->bump_rebases();
    attach(std::move(node), *this);
  }
  return *this;
}

Tensor& Tensor::fill_(Scalar value) {
  return overwrite("fill_", *this, [&](const View& out) { kernels(device()).fill(out, value); });
}

Tensor& Tensor::uniform_(double low, double high) {
  ops::check_floating("uniform_", {{"tensor", *this}});
  if (!(low <= high))
    fail("uniform_", text("the range [", low, ", ", high, ") is empty"), {{"tensor", *this}});
  return overwrite("uniform_", *this, [&](const View& out) {
    kernels(device()).uniform(out, default_generator().take(numel(), device()), low, high);
  });
}

Tensor& Tensor::normal_(double mean, double std) {
  ops::check_floating("normal_", {{"tensor", *this}});
  if (!(std >= 0)) fail("normal_", text("the standard deviation ", std, " is negative"), {{"tensor", *this}});
  return overwrite("normal_", *this, [&](const View& out) {
    kernels(device()).normal(out, default_generator().take(numel(), device()), mean, std);
  });
}

}  // namespace mezzo
