// Batch normalisation, a residual and ReLU as one op: what ends a block of a convolutional network, in one
// pass over memory forward (after that of the statistics), and two backward.
#include "autograd/call.h"
#include "autograd/engine.h"
#include "autograd/ops/batch_norm.h"
#include "autograd/samples.h"
#include "tensor/tensor_impl.h"

namespace mezzo {

namespace ops {

struct BatchNormRelu {
  static constexpr OpId id = OpId::batch_norm_relu;
  BatchNormOptions options;

  enum Input : size_t { x, weight, bias, running_mean, running_var, residual };

  void check(Inputs in) const {
    check_batch_norm("batch_norm_relu", in, options);
    if (in[residual].defined() &&
        (in[residual].shape() != in[x].shape() || in[residual].dtype() != in[x].dtype())) {
      fail("batch_norm_relu", "input and residual must have one shape and dtype",
           {{"input", in[x]}, {"residual", in[residual]}});
    }
  }

  Tensor forward(Inputs in, Saver& save) const {
    const auto [mean, invstd] = normalisation(in, options);
    const Tensor out = empty_like(in[x]);
    kernels(out.device())
        .batch_norm_relu(out.view_of_memory(), in[x].view_of_memory(), mean.view_of_memory(),
                         invstd.view_of_memory(), view_or_none(in[weight]), view_or_none(in[bias]),
                         view_or_none(in[residual]));
    for (const Input k : {x, weight, bias, residual}) save(in[k]);
    save(mean);
    save(invstd);
    // Where the sum was positive is made again from x; with a residual, the output says it, which costs
    // nothing, as the next op saves it too.
    save(in[residual].defined() ? out : Tensor());
    return out;
  }

  Tensors backward(Node& node, Inputs g) const {
    const std::array in{node.saved(0), node.saved(1), node.saved(2), node.saved(3)};
    const Tensor mean = node.saved(4), invstd = node.saved(5), out = node.saved(6);
    const auto& [input, w, b, r] = in;
    Tensors grads(6);
    if (grad_enabled()) {
      const Tensors all =
          vector_jacobian([&](Inputs at) { return Tensors{composition(at, mean, invstd)}; }, in, g);
      for (size_t k = 0; k < 3; ++k) grads[k] = all[k];
      grads[residual] = all[3];
      return grads;
    }
    const TensorOptions parameter{.dtype = w.defined() ? w.dtype() : mean.dtype(), .device = input.device()};
    // A gradient that nobody else reads becomes that of x, piece by piece: a tensor less to fetch and write.
    const bool in_place = is_sole_owner(g[0]) && g[0].strides() == input.strides() &&
                          (g[0].is_contiguous() || g[0].is_contiguous(channels_last));
    grads[x] = in_place ? g[0] : empty_like(input);
    grads[weight] = empty(mean.shape(), parameter);
    grads[bias] = empty(mean.shape(), parameter);
    if (node.needs(residual)) grads[residual] = empty_like(r);
    kernels(input.device())
        .batch_norm_relu_grad(grads[x].view_of_memory(), grads[weight].view_of_memory(),
                              grads[bias].view_of_memory(), view_or_none(grads[residual]),
                              g[0].view_of_memory(), view_or_none(out), input.view_of_memory(),
                              mean.view_of_memory(), invstd.view_of_memory(), view_or_none(w),
                              view_or_none(b), options.batch_statistics);
    for (const Input k : {weight, bias}) {
      if (!node.needs(k)) grads[k] = {};
    }
    return grads;
  }

  /// The same of {x, weight, bias, residual} by plain ops.
  Tensor composition(Inputs in, const Tensor& mean, const Tensor& invstd) const {
    // As running statistics, those of the forward pass: var + eps = invstd^-2.
    const Tensor var = sub(div(1.0, square(invstd)), options.eps);
    BatchNormOptions plain = options;
    plain.momentum = 0;
    const Tensor y = options.batch_statistics ? batch_norm(in[0], in[1], in[2], {}, {}, plain)
                                              : batch_norm(in[0], in[1], in[2], mean, var, plain);
    return relu(in[3].defined() ? add(y, in[3]) : y);
  }
};

}  // namespace ops

Tensor batch_norm_relu(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
                       const Tensor& running_var, const Tensor& residual, const BatchNormOptions& options) {
  return call(ops::BatchNormRelu{options}, x, weight, bias, running_mean, running_var, residual);
}

template <>
std::vector<Sample> samples<OpId::batch_norm_relu>() {
  const auto run = [](const BatchNormOptions& options) {
    return [options](Inputs in) {
      const auto at = [&](size_t i) { return i < in.size() ? in[i] : Tensor(); };
      const TensorOptions like{.dtype = compute_type(in[0].dtype()), .device = in[0].device()};
      const bool batch = options.batch_statistics;
      return Tensors{batch_norm_relu(in[0], at(1), at(2),
                                     batch ? Tensor() : full({in[0].size(1)}, 0.25, like),
                                     batch ? Tensor() : full({in[0].size(1)}, 1.5, like), at(3), options)};
    };
  };
  const auto inputs = [](const Shape& x, size_t count) {
    Tensors all = {uniform_sample(x), uniform_sample({x[1]}, 0.5, 2), uniform_sample({x[1]}),
                   uniform_sample(x)};
    all.resize(count);
    return all;
  };
  return {{"images", inputs({2, 3, 4, 5}, 3), run({})},
          {"with a residual", inputs({2, 3, 3, 2}, 4), run({})},
          {"rows", inputs({5, 3}, 4), run({})},
          {"no weight", inputs({3, 2, 2, 2}, 1), run({})},
          {"running statistics", inputs({2, 3, 2, 2}, 4), run({.batch_statistics = false})},
          {"no images", inputs({0, 3, 2, 2}, 4), run({.batch_statistics = false})}};
}

}  // namespace mezzo
