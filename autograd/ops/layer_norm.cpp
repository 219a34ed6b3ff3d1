// Layer normalisation: layer_norm and its gradient.
//   n values in each row; y = (x - mean) rstd w + b with rstd = 1 / sqrt(var + eps), var biased (over n)
// Statistics, and arithmetic on 16-bit values, are in float32.
#include "autograd/call.h"
#include "autograd/engine.h"
#include "autograd/samples.h"
#include "tensor/tensor_impl.h"

namespace mezzo {

namespace ops {

namespace {

/// The last dimensions of x, as many as `normalized` has.
Dims normalized_dims(const Tensor& x, const Shape& normalized) {
  Dims dims;
  for (int d = x.dim() - normalized.dim(); d < x.dim(); ++d) dims.push_back(d);
  return dims;
}

/// x's shape with size 1 in place of what is normalised.
Shape statistics_shape(const Tensor& x, const Shape& normalized) {
  Shape shape = x.shape();
  for (int64_t d : normalized_dims(x, normalized)) shape[static_cast<int>(d)] = 1;
  return shape;
}

/// Throws Error unless x's last dimensions are `normalized`, and weight and bias, where given, have that
/// shape.
void check_rows(std::string_view op, const Shape& normalized, const Tensor& x,
                std::initializer_list<Operand> parameters) {
  if (!is_floating(x.dtype())) fail(op, "needs a floating dtype", {{"input", x}});
  if (normalized.empty()) fail(op, "normalized_shape needs at least 1 dimension", {{"input", x}});
  bool fits = x.dim() >= normalized.dim();
  for (int i = 1; fits && i <= normalized.dim(); ++i) fits = x.size(-i) == normalized[normalized.dim() - i];
  if (!fits) {
    fail(op, text("the input's last dimensions are not the normalized_shape ", to_string(normalized)),
         {{"input", x}});
  }
  for (const Operand& parameter : parameters) {
    const Tensor& p = parameter.tensor;
    if (!p.defined()) continue;
    if (!is_floating(p.dtype())) fail(op, "needs a floating dtype", {parameter});
    if (p.shape() != normalized) {
      fail(op, text(parameter.name, " must have the normalized_shape ", to_string(normalized)),
           {{"input", x}, parameter});
    }
  }
}

}  // namespace

struct LayerNorm {
  static constexpr OpId id = OpId::layer_norm;
  Shape normalized;
  double eps;

  void check(Inputs in) const {
    check_rows("layer_norm", normalized, in[0], {{"weight", in[1]}, {"bias", in[2]}});
  }
  Tensor forward(Inputs in, Saver& save) const {
    const Tensor& x = in[0];
    const TensorOptions statistics{.dtype = compute_type(x.dtype()), .device = x.device()};
    const Tensor out = empty_like(x), mean = empty(statistics_shape(x, normalized), statistics),
                 rstd = empty_like(mean);
    kernels(x.device())
        .layer_norm(out.view_of_memory(), mean.view_of_memory(), rstd.view_of_memory(), x.view_of_memory(),
                    view_or_none(in[1]), view_or_none(in[2]), eps);
    save(x);
    save(in[1]);
    save(mean);
    save(rstd);
    return out;
  }
  Tensors backward(Node& node, Inputs g) const {
    const auto [dx, dw, db] =
        layer_norm_grad(g[0], node.saved(0), node.saved(1), node.saved(2), node.saved(3), normalized, eps);
    return {dx, node.needs(1) ? dw : Tensor(), node.needs(2) ? db : Tensor()};
  }
};

/// One kernel forward. Its own backward goes through the plain ops that the kernel stands for, mean and rstd
/// included, so layer_norm has every derivative.
struct LayerNormGrad {
  static constexpr OpId id = OpId::layer_norm_grad;
  Shape normalized;
  double eps;

  void check(Inputs in) const {
    const Tensor &g = in[0], &x = in[1];
    check_rows("layer_norm_grad", normalized, x, {{"weight", in[2]}});
    if (g.shape() != x.shape() || !is_floating(g.dtype()))
      fail("layer_norm_grad", "the gradient must be floating and have the input's shape",
           {{"gradient", g}, {"input", x}});
    const Shape statistics = statistics_shape(x, normalized);
    if (in[3].shape() != statistics || in[4].shape() != statistics) {
      fail("layer_norm_grad", text("mean and rstd must have shape ", to_string(statistics)),
           {{"input", x}, {"mean", in[3]}, {"rstd", in[4]}});
    }
  }
  std::array<Tensor, 3> forward(Inputs in, Saver& save) const {
    const Tensor &x = in[1], &weight = in[2];
    const DType dtype = weight.defined() ? weight.dtype() : compute_type(x.dtype());
    const TensorOptions parameter{.dtype = dtype, .device = x.device()};
    const std::array<Tensor, 3> out{empty_like(x), empty(normalized, parameter),
                                    empty(normalized, parameter)};
    kernels(x.device())
        .layer_norm_grad(out[0].view_of_memory(), out[1].view_of_memory(), out[2].view_of_memory(),
                         in[0].view_of_memory(), x.view_of_memory(), in[3].view_of_memory(),
                         in[4].view_of_memory(), view_or_none(weight));
    for (const Tensor& tensor : in) save(tensor);
    return out;
  }
  Tensors backward(Node& node, Inputs u) const {
    Tensors in;
    for (size_t k = 0; k < node.saved_count(); ++k) in.push_back(node.saved(k));
    return vector_jacobian([this](Inputs at) { return composition(at); }, in, u);
  }

  /// The same three gradients by plain ops, with mean and rstd as the functions of x that they are.
  Tensors composition(Inputs in) const {
    const DType dtype = in[3].dtype();
    const Tensor g = in[0].to(dtype), x = in[1].to(dtype), &weight = in[2];
    const Dims dims = normalized_dims(x, normalized);
    const Tensor centred = sub(x, x.mean(dims, true));
    const Tensor rstd = div(1.0, sqrt(add(square(centred).mean(dims, true), eps))), xhat = mul(centred, rstd);
    const Tensor v = weight.defined() ? mul(g, weight) : g;
    const Tensor through_statistics = add(v.mean(dims, true), mul(xhat, mul(v, xhat).mean(dims, true)));
    return {mul(rstd, sub(v, through_statistics)), sum_to(mul(g, xhat), normalized), sum_to(g, normalized)};
  }
};

}  // namespace ops

Tensor layer_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight, const Tensor& bias,
                  double eps) {
  return call(ops::LayerNorm{normalized_shape, eps}, x, weight, bias);
}

std::array<Tensor, 3> layer_norm_grad(const Tensor& g, const Tensor& x, const Tensor& weight,
                                      const Tensor& mean, const Tensor& rstd, const Shape& normalized_shape,
                                      double eps) {
  return call(ops::LayerNormGrad{normalized_shape, eps}, g, x, weight, mean, rstd);
}

template <>
std::vector<Sample> samples<OpId::layer_norm>() {
  const auto over = [](const Shape& normalized) {
    return [=](Inputs in) {
      return Tensors{
          layer_norm(in[0], normalized, in.size() > 1 ? in[1] : Tensor(), in.size() > 2 ? in[2] : Tensor())};
    };
  };
  return {{"rows", {uniform_sample({4, 5}), uniform_sample({5}, 0.5, 2), uniform_sample({5})}, over({5})},
          {"images",
           {uniform_sample({2, 3, 4, 5}), uniform_sample({4, 5}, 0.5, 2), uniform_sample({4, 5})},
           over({4, 5})},
          {"one row, no bias", {uniform_sample({3, 4}), uniform_sample({3, 4}, 0.5, 2)}, over({3, 4})},
          {"no weight", {uniform_sample({2, 3, 4})}, over({4})},
          {"no rows", {uniform_sample({0, 3}), uniform_sample({3}), uniform_sample({3})}, over({3})}};
}

template <>
std::vector<Sample> samples<OpId::layer_norm_grad>() {
  const auto over = [](const Shape& normalized) {
    return [=](Inputs in) {
      const Tensor x = in[1].detach().to(compute_type(in[1].dtype()));
      const Dims dims = ops::normalized_dims(x, normalized);
      const Tensor mean = x.mean(dims, true);
      const Tensor rstd = div(1.0, sqrt(add(square(sub(x, mean)).mean(dims, true), 1e-5)));
      const auto grads = layer_norm_grad(in[0], in[1], in[2], mean, rstd, normalized);
      return Tensors(grads.begin(), grads.end());
    };
  };
  return {{"rows of two dimensions",
           {uniform_sample({4, 2, 3}), uniform_sample({4, 2, 3}), uniform_sample({2, 3}, 0.5, 2)},
           over({2, 3})},
          {"images",
           {uniform_sample({2, 2, 3, 2}), uniform_sample({2, 2, 3, 2}), uniform_sample({3, 2}, 0.5, 2)},
           over({3, 2})},
          {"no rows", {uniform_sample({0, 3}), uniform_sample({0, 3}), uniform_sample({3})}, over({3})}};
}

}  // namespace mezzo
