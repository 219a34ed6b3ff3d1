// Losses of a choice between two: binary_cross_entropy and its form for logits. 16-bit values in float32.
#include "autograd/call.h"
#include "autograd/ops/loss.h"
#include "autograd/samples.h"
#include "tensor/backend.h"
#include "tensor/tensor_impl.h"

namespace mezzo {

namespace ops {

namespace {

/// Throws Error unless target has input's shape and the factors broadcast to it, all floating.
void check_binary(std::string_view op, const Tensor& x, const Tensor& target,
                  std::initializer_list<Operand> factors) {
  for (const Tensor& operand : {x, target}) {
    if (!is_floating(operand.dtype())) fail(op, "needs a floating dtype", {{"input", x}, {"target", target}});
  }
  if (x.shape() != target.shape())
    fail(op, "input and target must have one shape", {{"input", x}, {"target", target}});
  for (const Operand& factor : factors) {
    if (!factor.tensor.defined()) continue;
    if (!is_floating(factor.tensor.dtype())) fail(op, "needs a floating dtype", {factor});
    Shape joint;
    if (!broadcast(x.shape(), factor.tensor.shape(), joint) || joint != x.shape()) {
      fail(op, text(factor.name, " does not broadcast to the input"), {{"input", x}, factor});
    }
  }
}

/// The type that arithmetic on x and target runs in.
DType common_type(const Tensor& x, const Tensor& target) {
  return compute_type(promote(std::array{x, target}));
}

Tensor times(const Tensor& x, const Tensor& weight) {
  return weight.defined() ? mul(x, weight.to(x.dtype())) : x;
}

/// log(x), at least -100.
Tensor bounded_log(const Tensor& x) { return maximum(log(x), -100.0); }

/// Gradient of each loss, from the gradient g of what they were reduced to. The weight is a constant.
Tensor gradient_of_each(const Tensor& g, const Tensor& x, const Tensor& weight, LossReduction reduction) {
  const double count = reduction == LossReduction::mean ? static_cast<double>(x.numel()) : 1.0;
  return times(expand(div(g, count), x.shape()), weight);
}

}  // namespace

struct BinaryCrossEntropy {
  static constexpr OpId id = OpId::binary_cross_entropy;
  LossReduction reduction;

  void check(Inputs in) const {
    check_binary("binary_cross_entropy", in[0], in[1], {{"weight", in[2]}});
    const Tensor x = in[0].detach();
    if (!is_capturing(x.device()) && !all(logical_and(ge(x, 0), le(x, 1))).item<bool>()) {
      fail("binary_cross_entropy", "input has values outside [0, 1]", {{"input", x}},
           "apply sigmoid, or use binary_cross_entropy_with_logits");
    }
  }
  Tensor forward(Inputs in, Saver& save) const {
    for (const Tensor& x : in) save(x);
    const DType dtype = common_type(in[0], in[1]);
    const Tensor x = in[0].to(dtype), target = in[1].to(dtype);
    const Tensor losses = neg(add(mul(target, bounded_log(x)), mul(sub(1, target), bounded_log(sub(1, x)))));
    return reduce(times(losses, in[2]), reduction).to(promote(in.first(2)));
  }
  /// (x - target) / (x (1 - x)), where the bound on the logarithms is one of the divisor: the slope of a
  /// loss of 100 still points the way.
  Tensors backward(Node& node, Inputs g) const {
    const DType dtype = common_type(node.saved(0), node.saved(1));
    const Tensor x = node.saved(0).to(dtype), target = node.saved(1).to(dtype);
    const Tensor each = gradient_of_each(g[0].to(dtype), x, node.saved(2), reduction);
    Tensors grads(3);
    if (node.needs(0)) grads[0] = mul(each, div(sub(x, target), maximum(mul(sub(1, x), x), 1e-12)));
    if (node.needs(1)) grads[1] = mul(each, sub(bounded_log(sub(1, x)), bounded_log(x)));
    return grads;
  }
};

/// With p = pos_weight: -p target log_sigmoid(x) - (1 - target) log_sigmoid(-x), of which the value takes
/// log_sigmoid(-x) = log_sigmoid(x) - x, as PyTorch does, so that the same logits give NaN.
struct BinaryCrossEntropyWithLogits {
  static constexpr OpId id = OpId::binary_cross_entropy_with_logits;
  LossReduction reduction;

  void check(Inputs in) const {
    check_binary(info(id).name, in[0], in[1], {{"weight", in[2]}, {"pos_weight", in[3]}});
  }
  Tensor forward(Inputs in, Saver& save) const {
    for (const Tensor& x : in) save(x);
    const DType dtype = common_type(in[0], in[1]);
    const Tensor x = in[0].to(dtype), target = in[1].to(dtype), rest = sub(1, target);
    const Tensor losses = sub(mul(rest, x), mul(add(rest, times(target, in[3])), log_sigmoid(x)));
    return reduce(times(losses, in[2]), reduction).to(promote(in.first(2)));
  }
  Tensors backward(Node& node, Inputs g) const {
    const DType dtype = common_type(node.saved(0), node.saved(1));
    const Tensor x = node.saved(0).to(dtype), target = node.saved(1).to(dtype), p = node.saved(3);
    const Tensor each = gradient_of_each(g[0].to(dtype), x, node.saved(2), reduction);
    Tensors grads(4);
    if (node.needs(0)) {
      const Tensor up = mul(sub(1, target), sigmoid(x)), down = mul(times(target, p), sigmoid(neg(x)));
      grads[0] = mul(each, sub(up, down));
    }
    if (node.needs(1)) grads[1] = mul(each, sub(log_sigmoid(neg(x)), times(log_sigmoid(x), p)));
    return grads;
  }
};

}  // namespace ops

Tensor binary_cross_entropy(const Tensor& x, const Tensor& target, const Tensor& weight,
                            LossReduction reduction) {
  return call(ops::BinaryCrossEntropy{reduction}, x, target, weight);
}

Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& target, const Tensor& weight,
                                        const Tensor& pos_weight, LossReduction reduction) {
  return call(ops::BinaryCrossEntropyWithLogits{reduction}, x, target, weight, pos_weight);
}

namespace {

/// `f` takes input and target, in (0, 1), and the reduction.
std::vector<Sample> binary_samples(Tensor (*f)(const Tensor&, const Tensor&, LossReduction)) {
  const auto by = [f](LossReduction reduction) {
    return [=](Inputs in) { return Tensors{f(in[0], in[1], reduction)}; };
  };
  const auto draw = [](const Shape& shape) { return uniform_sample(shape, 0.1, 0.9); };
  return {{"mean", {draw({2, 3, 4, 5}), draw({2, 3, 4, 5})}, by(LossReduction::mean)},
          {"sum", {draw({3, 4}), draw({3, 4})}, by(LossReduction::sum)},
          {"none", {draw({2, 3, 2, 2}), draw({2, 3, 2, 2})}, by(LossReduction::none)},
          {"0-d", {draw({}), draw({})}, by(LossReduction::mean)},
          {"empty", {draw({0, 3}), draw({0, 3})}, by(LossReduction::sum)}};
}

/// 0.5, 1, 1.5, ... in the dtype and on the device of x.
Tensor factor_like(const Tensor& x, const Shape& shape) {
  const Tensor counts = arange(1, shape.numel() + 1, 1, {.dtype = x.dtype(), .device = x.device()});
  return reshape(mul(counts, 0.5), shape);
}

}  // namespace

template <>
std::vector<Sample> samples<OpId::binary_cross_entropy>() {
  std::vector<Sample> all =
      binary_samples([](const Tensor& x, const Tensor& target, LossReduction reduction) {
        return binary_cross_entropy(x, target, {}, reduction);
      });
  all.push_back({"weights", {uniform_sample({3, 4}, 0.1, 0.9), uniform_sample({3, 4}, 0, 1)}, [](Inputs in) {
                   return Tensors{binary_cross_entropy(in[0], in[1], factor_like(in[0], {4}))};
                 }});
  return all;
}

template <>
std::vector<Sample> samples<OpId::binary_cross_entropy_with_logits>() {
  std::vector<Sample> all =
      binary_samples([](const Tensor& x, const Tensor& target, LossReduction reduction) {
        return binary_cross_entropy_with_logits(x, target, {}, {}, reduction);
      });
  all.push_back({"weights", {uniform_sample({3, 4}, -3, 3), uniform_sample({3, 4}, 0, 1)}, [](Inputs in) {
                   return Tensors{binary_cross_entropy_with_logits(in[0], in[1], factor_like(in[0], {3, 1}),
                                                                   factor_like(in[0], {4}))};
                 }});
  return all;
}

}  // namespace mezzo
