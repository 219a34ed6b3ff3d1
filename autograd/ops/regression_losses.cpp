// Losses of a difference: mse_loss, l1_loss. Of 16-bit values it is taken in float32, where neither squares
// overflow nor 1 / count vanishes.
#include "autograd/ops/composed.h"
#include "autograd/ops/loss.h"
#include "autograd/samples.h"
#include "tensor/tensor_impl.h"

namespace mezzo {

namespace ops {

namespace {

/// Throws Error unless input and target broadcast to floating values.
void check_difference(std::string_view op, Inputs in) {
  Shape joint;
  if (!broadcast(in[0].shape(), in[1].shape(), joint)) {
    fail(op, "input and target do not broadcast", {{"input", in[0]}, {"target", in[1]}});
  }
  if (!is_floating(promote(in))) fail(op, "needs a floating dtype", {{"input", in[0]}, {"target", in[1]}});
}

Tensor difference(const Tensor& x, const Tensor& target) {
  const DType dtype = compute_type(promote(std::array{x, target}));
  return sub(x.to(dtype), target.to(dtype));
}

}  // namespace

struct MseLoss {
  static constexpr OpId id = OpId::mse_loss;
  LossReduction reduction;

  void check(Inputs in) const { check_difference("mse_loss", in); }

  Tensor forward(Inputs in, Saver& save) const {
    save(in[0]);
    save(in[1]);
    return reduce(square(difference(in[0], in[1])), reduction).to(promote(in));
  }

  /// dx = 2 (x - target) dy, over the number of elements for the mean; dtarget = -dx.
  Tensors backward(Node& node, Inputs g) const {
    const Tensor d = difference(node.saved(0), node.saved(1));
    const double count = reduction == LossReduction::mean ? static_cast<double>(d.numel()) : 1.0;
    const Tensor dx = mul(d, mul(g[0].to(d.dtype()), 2.0 / count));
    return {node.needs(0) ? dx : Tensor(), node.needs(1) ? neg(dx) : Tensor()};
  }
};

struct L1Loss : Composed<L1Loss> {
  static constexpr OpId id = OpId::l1_loss;
  LossReduction reduction;

  explicit L1Loss(LossReduction reduction) : reduction(reduction) {}

  void check(Inputs in) const { check_difference("l1_loss", in); }
  Tensor compose(Inputs in) const { return reduce(abs(difference(in[0], in[1])), reduction).to(promote(in)); }
};

}  // namespace ops

Tensor mse_loss(const Tensor& x, const Tensor& target, LossReduction reduction) {
  return call(ops::MseLoss{reduction}, x, target);
}

Tensor l1_loss(const Tensor& x, const Tensor& target, LossReduction reduction) {
  return call(ops::L1Loss(reduction), x, target);
}

namespace {

std::vector<Sample> difference_samples(Tensor (*loss)(const Tensor&, const Tensor&, LossReduction)) {
  const auto by = [loss](LossReduction reduction) {
    return [=](Inputs in) { return Tensors{loss(in[0], in[1], reduction)}; };
  };
  return {{"mean", {uniform_sample({2, 3, 4, 5}), uniform_sample({2, 3, 4, 5})}, by(LossReduction::mean)},
          {"sum, broadcast", {uniform_sample({3, 1}), uniform_sample({4})}, by(LossReduction::sum)},
          {"none", {uniform_sample({3, 4}), uniform_sample({3, 4})}, by(LossReduction::none)},
          {"0-d", {uniform_sample({}), uniform_sample({})}, by(LossReduction::mean)},
          {"empty", {uniform_sample({0, 3}), uniform_sample({0, 3})}, by(LossReduction::sum)}};
}

}  // namespace

template <>
std::vector<Sample> samples<OpId::mse_loss>() {
  return difference_samples(&mse_loss);
}
template <>
std::vector<Sample> samples<OpId::l1_loss>() {
  return difference_samples(&l1_loss);
}

}  // namespace mezzo
