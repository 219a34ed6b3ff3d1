// Batch normalisation: batch_norm and its gradient.
//   C channels, n values in each; y = (x - mean) invstd w + b with invstd = 1 / sqrt(var + eps), var biased
//   (over n)
// Statistics, and arithmetic on 16-bit values, are in float32.
#include "autograd/ops/batch_norm.h"
#include "autograd/call.h"
#include "autograd/engine.h"
#include "autograd/ops/along.h"
#include "autograd/samples.h"
#include "tensor/tensor_impl.h"

namespace mezzo {

namespace ops {

namespace {

/// [C] as a shape that broadcasts over x's channels.
Tensor over_channels(const Tensor& v, const Tensor& x) { return along(v, 1, x.dim()); }

/// All dimensions but the channels'.
Dims all_but_channels(const Tensor& x) {
  Dims dims(0);
  for (int d = 2; d < x.dim(); ++d) dims.push_back(d);
  return dims;
}

}  // namespace

struct BatchNorm {
  static constexpr OpId id = OpId::batch_norm;
  BatchNormOptions options;

  void check(Inputs in) const { check_batch_norm("batch_norm", in, options); }

  Tensor forward(Inputs in, Saver& save) const {
    const Tensor& x = in[0];
    const auto [mean, invstd] = normalisation(in, options);
    const Tensor out = empty_like(x);
    kernels(x.device())
        .batch_norm(out.view_of_memory(), x.view_of_memory(), mean.view_of_memory(), invstd.view_of_memory(),
                    view_or_none(in[1]), view_or_none(in[2]));
    save(x);
    save(in[1]);
    save(mean);
    save(invstd);
    return out;
  }

  Tensors backward(Node& node, Inputs g) const {
    const auto [dx, dw, db] = batch_norm_grad(g[0], node.saved(0), node.saved(1), node.saved(2),
                                              node.saved(3), options.batch_statistics);
    return {dx, node.needs(1) ? dw : Tensor(), node.needs(2) ? db : Tensor(), {}, {}};
  }
};

/// One kernel forward. Its own backward goes through the plain ops that the kernel stands for, mean and
/// variance included, so batch_norm has every derivative.
struct BatchNormGrad {
  static constexpr OpId id = OpId::batch_norm_grad;
  bool batch_statistics;

  void check(Inputs in) const {
    const Tensor &g = in[0], &x = in[1];
    if (g.shape() != x.shape() || x.dim() < 2 || !is_floating(x.dtype())) {
      fail("batch_norm_grad", "gradient and input must be floating and of one shape [N, C, ...]",
           {{"gradient", g}, {"input", x}});
    }
    constexpr std::string_view names[] = {"", "", "weight", "mean", "invstd"};
    for (size_t k = 2; k < in.size(); ++k) {
      if (k == 2 && !in[k].defined()) continue;
      if (in[k].shape() != Shape{x.size(1)}) {
        fail("batch_norm_grad", text(names[k], " must have ", x.size(1), " elements"),
             {{"input", x}, {names[k], in[k]}});
      }
    }
  }

  std::array<Tensor, 3> forward(Inputs in, Saver& save) const {
    const Tensor &g = in[0], &x = in[1], &weight = in[2], &mean = in[3], &invstd = in[4];
    const DType dtype = weight.defined() ? weight.dtype() : compute_type(x.dtype());
    const TensorOptions parameter{.dtype = dtype, .device = x.device()};
    const std::array<Tensor, 3> out{empty_like(x), empty({x.size(1)}, parameter),
                                    empty({x.size(1)}, parameter)};
    kernels(x.device())
        .batch_norm_grad(out[0].view_of_memory(), out[1].view_of_memory(), out[2].view_of_memory(),
                         g.view_of_memory(), x.view_of_memory(), mean.view_of_memory(),
                         invstd.view_of_memory(), view_or_none(weight), batch_statistics);
    for (const Tensor& tensor : in) save(tensor);
    return out;
  }

  Tensors backward(Node& node, Inputs u) const {
    Tensors in;
    for (size_t k = 0; k < node.saved_count(); ++k) in.push_back(node.saved(k));
    // eps is no input, but the saved statistics tell it: with batch statistics invstd^-2 = var + eps.
    return vector_jacobian([this](Inputs at) { return composition(at); }, in, u);
  }

  /// The same three gradients by plain ops. With batch statistics mean and invstd are functions of x: invstd
  /// is made again from x, its constant part (eps) being what the saved value leaves beside the variance.
  Tensors composition(Inputs in) const {
    const Tensor g = in[0].to(in[3].dtype()), x = in[1].to(in[3].dtype()), &weight = in[2];
    const Dims dims = all_but_channels(x);
    Tensor mean = over_channels(in[3], x), invstd = over_channels(in[4], x);
    if (batch_statistics) {
      const Tensor centred = sub(x, x.mean(dims, true));
      const Tensor var = square(centred).mean(dims, true);
      const Tensor eps = sub(div(1.0, square(invstd.detach())), var.detach());
      mean = x.mean(dims, true);
      invstd = div(1.0, sqrt(add(var, eps)));
    }
    const Tensor normalised = mul(sub(x, mean), invstd);
    const Tensor db = sum(g, dims), dw = sum(mul(g, normalised), dims);
    Tensor dx = g;
    if (batch_statistics) {
      const Tensor correction = add(over_channels(db, x), mul(normalised, over_channels(dw, x)));
      dx = sub(g, div(correction, static_cast<double>(values_per_channel(x))));
    }
    dx = mul(dx, weight.defined() ? mul(invstd, over_channels(weight, x)) : invstd);
    return {dx, dw, db};
  }
};

}  // namespace ops

Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
                  const Tensor& running_var, const BatchNormOptions& options) {
  return call(ops::BatchNorm{options}, x, weight, bias, running_mean, running_var);
}

std::array<Tensor, 3> batch_norm_grad(const Tensor& g, const Tensor& x, const Tensor& weight,
                                      const Tensor& mean, const Tensor& invstd, bool batch_statistics) {
  return call(ops::BatchNormGrad{batch_statistics}, g, x, weight, mean, invstd);
}

template <>
std::vector<Sample> samples<OpId::batch_norm>() {
  const auto train = [](Inputs in) {
    return Tensors{
        batch_norm(in[0], in.size() > 1 ? in[1] : Tensor(), in.size() > 2 ? in[2] : Tensor(), {}, {})};
  };
  const auto eval = [](Inputs in) {
    const TensorOptions like{.dtype = compute_type(in[0].dtype()), .device = in[0].device()};
    return Tensors{batch_norm(in[0], in[1], in[2], full({in[0].size(1)}, 0.25, like),
                              full({in[0].size(1)}, 1.5, like), {.batch_statistics = false})};
  };
  return {
      {"images", {uniform_sample({2, 3, 4, 5}), uniform_sample({3}, 0.5, 2), uniform_sample({3})}, train},
      {"rows", {uniform_sample({5, 3}), uniform_sample({3}, 0.5, 2), uniform_sample({3})}, train},
      {"sequences", {uniform_sample({2, 3, 5}), uniform_sample({3}, 0.5, 2), uniform_sample({3})}, train},
      {"no weight", {uniform_sample({3, 2, 2, 2})}, train},
      {"running statistics", {uniform_sample({2, 3, 2, 2}), uniform_sample({3}), uniform_sample({3})}, eval},
      {"no images", {uniform_sample({0, 3, 2, 2}), uniform_sample({3}), uniform_sample({3})}, eval}};
}

template <>
std::vector<Sample> samples<OpId::batch_norm_grad>() {
  // mean and invstd of running statistics are inputs like others; those of a batch belong to x.
  const auto eval = [](Inputs in) {
    const auto grads = batch_norm_grad(in[0], in[1], in[2], in[3], in[4], false);
    return Tensors(grads.begin(), grads.end());
  };
  const auto train = [](Inputs in) {
    const Tensor x = in[1].detach();
    const DType dtype = compute_type(x.dtype());
    const Tensor mean = x.to(dtype).mean({0, 2, 3}), centred = sub(x.to(dtype), ops::over_channels(mean, x));
    const Tensor invstd = div(1.0, sqrt(add(square(centred).mean({0, 2, 3}), 1e-5)));
    const auto grads = batch_norm_grad(in[0], in[1], in[2], mean, invstd, true);
    return Tensors(grads.begin(), grads.end());
  };
  return {{"running statistics",
           {uniform_sample({2, 3, 2, 2}), uniform_sample({2, 3, 2, 2}), uniform_sample({3}),
            uniform_sample({3}), uniform_sample({3}, 0.5, 2)},
           eval},
          {"no images",
           {uniform_sample({0, 3, 2, 2}), uniform_sample({0, 3, 2, 2}), uniform_sample({3}),
            uniform_sample({3}), uniform_sample({3}, 0.5, 2)},
           eval},
          {"batch statistics",
           {uniform_sample({2, 3, 2, 2}), uniform_sample({2, 3, 2, 2}), uniform_sample({3})},
           train}};
}

}  // namespace mezzo
