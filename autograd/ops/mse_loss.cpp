// Mean squared error: mse_loss.
#include "autograd/call.h"
#include "autograd/samples.h"
#include "tensor/tensor_impl.h"

namespace mezzo {

namespace ops {

struct MseLoss {
  static constexpr OpId id = OpId::mse_loss;
  LossReduction reduction;

  void check(Inputs in) const {
    Shape joint;
    if (!broadcast(in[0].shape(), in[1].shape(), joint)) {
      fail("mse_loss", "input and target do not broadcast", {{"input", in[0]}, {"target", in[1]}});
    }
    if (!is_floating(promote(in)))
      fail("mse_loss", "needs a floating dtype", {{"input", in[0]}, {"target", in[1]}});
  }

  Tensor forward(Inputs in, Saver& save) const {
    save(in[0]);
    save(in[1]);
    const Tensor squares = square(difference(in[0], in[1]));
    const Tensor loss = reduction == LossReduction::none  ? squares
                        : reduction == LossReduction::sum ? sum(squares)
                                                          : mean(squares);
    return loss.to(promote(in));
  }

  /// dx = 2 (x - target) dy, over the number of elements for the mean; dtarget = -dx.
  Tensors backward(Node& node, Inputs g) const {
    const Tensor d = difference(node.saved(0), node.saved(1));
    const double count = reduction == LossReduction::mean ? static_cast<double>(d.numel()) : 1.0;
    const Tensor dx = mul(d, mul(g[0].to(d.dtype()), 2.0 / count));
    return {node.needs(0) ? dx : Tensor(), node.needs(1) ? neg(dx) : Tensor()};
  }

 private:
  /// x - target; of 16-bit values in float32, where neither the squares overflow nor 2 / count vanishes.
  static Tensor difference(const Tensor& x, const Tensor& target) {
    const DType dtype = compute_type(promote(std::array{x, target}));
    return sub(x.to(dtype), target.to(dtype));
  }
};

}  // namespace ops

Tensor mse_loss(const Tensor& x, const Tensor& target, LossReduction reduction) {
  return call(ops::MseLoss{reduction}, x, target);
}

template <>
std::vector<Sample> samples<OpId::mse_loss>() {
  const auto by = [](LossReduction reduction) {
    return [=](Inputs in) { return Tensors{mse_loss(in[0], in[1], reduction)}; };
  };
  return {{"mean", {uniform_sample({2, 3, 4, 5}), uniform_sample({2, 3, 4, 5})}, by(LossReduction::mean)},
          {"sum, broadcast", {uniform_sample({3, 1}), uniform_sample({4})}, by(LossReduction::sum)},
          {"none", {uniform_sample({3, 4}), uniform_sample({3, 4})}, by(LossReduction::none)},
          {"0-d", {uniform_sample({}), uniform_sample({})}, by(LossReduction::mean)},
          {"empty", {uniform_sample({0, 3}), uniform_sample({0, 3})}, by(LossReduction::sum)}};
}

}  // namespace mezzo
