// A 1x1 convolution between batch normalisations. It normalises its input by given statistics and returns
// those of its result, so that a chain of convolution, BatchNorm, ReLU, convolution, ... is one such op for
// each convolution, and each op one pass over memory in each direction.
//
// The statistics are ordinary differentiable outputs. The gradient of y through its own mean and variance
// comes back to this op as two numbers a channel, which its backward adds while it reads the gradient of y:
// no op needs to know the one before or after it.
#include "autograd/call.h"
#include "autograd/engine.h"
#include "autograd/ops/along.h"
#include "autograd/ops/check.h"
#include "autograd/samples.h"
#include "tensor/tensor_impl.h"

namespace mezzo {

namespace ops {

namespace {

/// An activation [N, C, H, W] as channels-last memory holds it.
Tensor pixels_first(const Tensor& x) { return x.contiguous(channels_last); }

/// Pixels by channels, of an activation in that layout.
View as_matrix(const Tensor& x) {
  const int64_t channels = x.size(1);
  View view = x.view_of_memory();
  view.shape = {x.numel() / channels, channels};
  view.strides = {channels, 1};
  return view;
}

/// A weight [O, C, 1, 1] as [O, C].
View as_matrix_of_weights(const Tensor& weight) {
  View view = weight.view_of_memory();
  view.shape = {view.shape[0], view.shape[1]};
  view.strides = {view.strides[0], view.strides[1]};
  return view;
}

Tensor inverse_deviation(const Tensor& var, double eps, DType dtype) {
  return div(1.0, sqrt(add(var.to(dtype), eps)));
}

}  // namespace

struct Conv1x1Stats {
  static constexpr OpId id = OpId::conv1x1_stats;
  double eps;

  enum Input : size_t { x, weight, bias, mean, var, norm_weight, norm_bias };

  void check(Inputs in) const {
    constexpr std::string_view name = "conv1x1_stats";
    const std::initializer_list<Operand> operands = {
        {"input", in[x]}, {"weight", in[weight]}, {"bias", in[bias]}};
    check_floating(name, operands);
    if (in[x].dim() != 4)
      fail(name, text("input must be [N, C, H, W] but has ", in[x].dim(), " dimensions"), operands);
    const int64_t channels = in[x].size(1);
    if (in[weight].dim() != 4 || in[weight].shape() != Shape{in[weight].size(0), channels, 1, 1})
      fail(name, text("weight must be [O, ", channels, ", 1, 1]"), operands);
    if (in[weight].numel() == 0) fail(name, "needs at least 1 channel in and out", operands);
    if (in[bias].defined() && in[bias].shape() != Shape{in[weight].size(0)})
      fail(name, text("bias must have ", in[weight].size(0), " elements"), operands);
    if (in[mean].defined() != in[var].defined())
      fail(name, "mean and var go together", {{"mean", in[mean]}, {"var", in[var]}});
    constexpr std::string_view names[] = {"mean", "var", "norm_weight", "norm_bias"};
    for (size_t k = mean; k <= norm_bias; ++k) {
      if (!in[k].defined()) continue;
      const Operand operand{names[k - mean], in[k]};
      if (!in[mean].defined()) fail(name, text(operand.name, " needs mean and var"), {operand});
      if (!is_floating(in[k].dtype())) fail(name, "needs a floating dtype", {operand});
      if (in[k].shape() != Shape{channels})
        fail(name, text(operand.name, " must have ", channels, " elements"), {{"input", in[x]}, operand});
    }
  }

  std::array<Tensor, 3> forward(Inputs in, Saver& save) const {
    const Tensor pixels = pixels_first(in[x]);
    const int64_t out_channels = in[weight].size(0);
    const TensorOptions statistics{.dtype = compute_type(pixels.dtype()), .device = pixels.device()};
    const std::array<Tensor, 3> out{
        empty({pixels.size(0), out_channels, pixels.size(2), pixels.size(3)},
              {.dtype = pixels.dtype(), .device = pixels.device(), .format = channels_last}),
        empty({out_channels}, statistics), empty({out_channels}, statistics)};
    const Tensor invstd = in[var].defined() ? inverse_deviation(in[var], eps, *statistics.dtype) : Tensor();
    kernels(pixels.device())
        .conv1x1_stats(as_matrix(out[0]), out[1].view_of_memory(), out[2].view_of_memory(), as_matrix(pixels),
                       norm(in, invstd), as_matrix_of_weights(in[weight]), view_or_none(in[bias]));
    for (const Tensor& tensor : in) save(tensor);
    save(out[0]);
    save(out[1]);
    return out;
  }

  Tensors backward(Node& node, Inputs g) const {
    Tensors in;
    for (size_t k = x; k <= norm_bias; ++k) in.push_back(node.saved(k));
    if (grad_enabled()) return vector_jacobian([this](Inputs at) { return composition(at); }, in, g);

    const Tensor pixels = pixels_first(in[x]), y = node.saved(7), y_mean = node.saved(8);
    // A gradient that nobody else reads becomes that of x, a tile after the other: a tensor less.
    const bool in_place = g[0].defined() && is_sole_owner(g[0]) && g[0].is_contiguous(channels_last) &&
                          g[0].shape() == pixels.shape();
    const Tensor grad_y = g[0].defined() ? pixels_first(g[0]) : Tensor();
    const bool normalised = in[mean].defined();
    const TensorOptions of_channels{.dtype = y_mean.dtype(), .device = y.device()};
    const Tensor invstd = normalised ? inverse_deviation(in[var], eps, y_mean.dtype()) : Tensor();

    Tensors grads(7);
    if (node.needs(x) || normalised) grads[x] = in_place ? grad_y : empty_like(pixels);
    if (node.needs(weight))
      grads[weight] = empty(in[weight].shape(), {.dtype = y.dtype(), .device = y.device()});
    if (node.needs(bias)) grads[bias] = empty(in[bias].shape(), {.dtype = y.dtype(), .device = y.device()});
    for (const size_t k : {norm_weight, norm_bias}) {
      if (normalised) grads[k] = empty({pixels.size(1)}, of_channels);
    }
    kernels(y.device())
        .conv1x1_stats_grad(
            {grads[x].defined() ? as_matrix(grads[x]) : View(),
             grads[weight].defined() ? as_matrix_of_weights(grads[weight]) : View(),
             view_or_none(grads[bias]), view_or_none(grads[norm_weight]), view_or_none(grads[norm_bias])},
            grad_y.defined() ? as_matrix(grad_y) : View(), view_or_none(g[1]), view_or_none(g[2]),
            as_matrix(y), y_mean.view_of_memory(), as_matrix(pixels), norm(in, invstd),
            as_matrix_of_weights(in[weight]));
    if (normalised) {
      // a = xhat w + b with xhat = (x - mean) invstd: by mean -w invstd, by var -w xhat invstd² / 2.
      const Tensor scale = in[norm_weight].defined() ? mul(invstd, in[norm_weight]) : invstd;
      if (node.needs(mean)) grads[mean] = neg(mul(scale, grads[norm_bias]));
      if (node.needs(var)) grads[var] = mul(mul(mul(scale, invstd), grads[norm_weight]), -0.5);
    }
    for (size_t k = 0; k < grads.size(); ++k) {
      if (!node.needs(k)) grads[k] = {};
    }
    return grads;
  }

  NormRelu norm(Inputs in, const Tensor& invstd) const {
    return {view_or_none(in[mean]), view_or_none(invstd), view_or_none(in[norm_weight]),
            view_or_none(in[norm_bias])};
  }

  /// The same by plain ops, which have every derivative.
  Tensors composition(Inputs in) const {
    Tensor a = in[x];
    const DType dtype = a.dtype(), arithmetic = compute_type(dtype);
    if (in[mean].defined()) {
      const auto over = [&](const Tensor& v) { return along(v.to(arithmetic), 1, 4); };
      const Tensor invstd = div(1.0, sqrt(add(over(in[var]), eps)));
      a = mul(sub(a.to(arithmetic), over(in[mean])), invstd);
      if (in[norm_weight].defined()) a = mul(a, over(in[norm_weight]));
      if (in[norm_bias].defined()) a = add(a, over(in[norm_bias]));
      a = relu(a).to(dtype);
    }
    const Tensor y = conv2d(a, in[weight], in[bias]), wide = y.to(arithmetic);
    return {y, mezzo::mean(wide, {0, 2, 3}), mezzo::var(wide, {0, 2, 3}, 0)};
  }
};

}  // namespace ops

std::array<Tensor, 3> conv1x1_stats(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                    const Tensor& mean, const Tensor& var, const Tensor& norm_weight,
                                    const Tensor& norm_bias, double eps) {
  return call(ops::Conv1x1Stats{eps}, x, weight, bias, mean, var, norm_weight, norm_bias);
}

template <>
std::vector<Sample> samples<OpId::conv1x1_stats>() {
  const auto run = [](Inputs in) {
    const auto at = [&](size_t i) { return i < in.size() ? in[i] : Tensor(); };
    const auto out = conv1x1_stats(in[0], in[1], at(2), at(3), at(4), at(5), at(6));
    if (in[0].numel() == 0) return Tensors{out[0]};  // statistics of nothing are NaN
    return Tensors{out[0], out[1].to(in[0].dtype()), out[2].to(in[0].dtype())};
  };
  const auto inputs = [](const Shape& x, int64_t out_channels, size_t count) {
    const int64_t channels = x[1];
    Tensors all = {uniform_sample(x), uniform_sample({out_channels, channels, 1, 1}),
                   uniform_sample({out_channels}),
                   // So that a part of each channel passes the relu: nothing has no variance to compare.
                   uniform_sample({channels}, -0.5, 0.5), uniform_sample({channels}, 0.5, 2),
                   uniform_sample({channels}, 0.5, 2), uniform_sample({channels}, 0, 1)};
    all.resize(count);
    return all;
  };
  return {{"normalised", inputs({2, 3, 3, 2}, 4, 7), run},
          {"normalised, no weight", inputs({2, 3, 2, 2}, 2, 5), run},
          {"as it is", inputs({2, 3, 2, 3}, 4, 3), run},
          {"no bias", inputs({1, 2, 2, 3}, 3, 2), run},
          {"no images", inputs({0, 2, 2, 2}, 3, 7), run},
          {"one channel", inputs({2, 1, 2, 2}, 1, 7), run}};
}

}  // namespace mezzo
