// Convolution: conv2d and its two gradients, which are each other's derivatives.
//   N images, C channels in, O out, H x W in, OH x OW out, KH x KW kernel
//   y[n, o, i, j] = b[o] + sum over c, u, v of w[o, c, u, v] x[n, c, i * stride + u * dilation - padding,
//   ...]
#include "autograd/call.h"
#include "autograd/ops/check.h"
#include "autograd/samples.h"
#include "tensor/tensor_impl.h"

namespace mezzo {

namespace ops {

namespace {

int64_t padded(const ConvGeometry& geometry, int64_t input, size_t axis) {
  return input + 2 * geometry.padding[axis] + geometry.padding_after[axis];
}

/// OH and OW: floor((H + 2 padding - dilation (K - 1) - 1) / stride) + 1.
int64_t output_size(const ConvGeometry& geometry, int64_t input, int64_t kernel, size_t axis) {
  const int64_t span = geometry.dilation[axis] * (kernel - 1) + 1;
  return (padded(geometry, input, axis) - span) / geometry.stride[axis] + 1;
}

Shape output_shape(const ConvGeometry& geometry, const Shape& x, const Shape& weight) {
  return {x[0], weight[0], output_size(geometry, x[2], weight[2], 0),
          output_size(geometry, x[3], weight[3], 1)};
}

Tensor empty_activation(const Tensor& like, const Shape& shape, MemoryFormat format) {
  return empty(shape, {.dtype = like.dtype(), .device = like.device(), .format = format});
}

/// Throws Error unless the geometry fits an input of shape x, a weight, and each other; `operands` are for
/// the message.
void check_geometry(std::string_view op, const ConvGeometry& geometry, const Shape& x, const Shape& weight,
                    std::initializer_list<Operand> operands) {
  const auto wrong = [&](const std::string& fact) { fail(op, fact, operands); };
  if (x.dim() != 4) wrong(text("input must be [N, C, H, W] but has ", x.dim(), " dimensions"));
  if (weight.dim() != 4) wrong("weight must be [O, C / groups, KH, KW]");
  const int64_t groups = geometry.groups;
  if (groups < 1 || x[1] % groups != 0 || weight[0] % groups != 0) {
    wrong(text("groups = ", groups, " does not divide ", x[1], " input and ", weight[0], " output channels"));
  }
  if (x[1] != weight[1] * groups) {
    wrong(text("input has ", x[1], " channels but weight expects ", weight[1] * groups));
  }
  for (size_t axis = 0; axis < 2; ++axis) {
    const int64_t size = x[2 + static_cast<int>(axis)], kernel = weight[2 + static_cast<int>(axis)];
    if (geometry.stride[axis] < 1 || geometry.dilation[axis] < 1 || geometry.padding[axis] < 0 ||
        geometry.padding_after[axis] < 0 || kernel < 1) {
      wrong("stride, dilation and kernel size must be at least 1, padding at least 0");
    }
    const int64_t span = geometry.dilation[axis] * (kernel - 1) + 1;
    const int64_t all = padded(geometry, size, axis);
    if (span > all) wrong(text("the kernel spans ", span, " but the padded input ", all));
  }
}

}  // namespace

struct Conv2d {
  static constexpr OpId id = OpId::conv2d;
  ConvGeometry geometry;

  void check(Inputs in) const {
    const Tensor &x = in[0], &weight = in[1], &bias = in[2];
    const std::initializer_list<Operand> operands = {{"input", x}, {"weight", weight}, {"bias", bias}};
    check_floating("conv2d", operands);
    check_geometry("conv2d", geometry, x.shape(), weight.shape(), operands);
    if (bias.defined() && bias.shape() != Shape{weight.size(0)}) {
      fail("conv2d", text("bias must have ", weight.size(0), " elements"), operands);
    }
  }

  Tensor forward(Inputs in, Saver& save) const {
    const Tensor &x = in[0], &weight = in[1];
    const Tensor out = empty_activation(x, output_shape(geometry, x.shape(), weight.shape()), format_of(x));
    kernels(x.device())
        .conv2d(out.view_of_memory(), x.view_of_memory(), weight.view_of_memory(), view_or_none(in[2]),
                geometry);
    save(save.needs(1) ? x : Tensor());
    save(weight);
    return out;
  }

  Tensors backward(Node& node, Inputs g) const {
    Tensors grads(3);
    const Tensor x = node.saved(0), weight = node.saved(1);
    if (node.needs(0)) {
      // In the input's layout, which is that of the layers before it: the gradient's may have been lost on
      // its way.
      const MemoryFormat format = format_of(x.defined() ? x : g[0]);
      grads[0] = conv2d_input_grad(g[0], weight, node.input_info(0).shape, geometry, format);
    }
    if (node.needs(1)) grads[1] = conv2d_weight_grad(g[0], x, weight.shape(), geometry);
    if (node.needs(2)) grads[2] = sum(g[0], {0, 2, 3});
    return grads;
  }
};

/// dx, linear in g and in w. For a gradient u of it: dg = conv2d(u, w), dw = conv2d_weight_grad(g, u).
struct Conv2dInputGrad {
  static constexpr OpId id = OpId::conv2d_input_grad;
  Shape shape;
  ConvGeometry geometry;
  MemoryFormat format;

  void check(Inputs in) const {
    const std::initializer_list<Operand> operands = {{"gradient", in[0]}, {"weight", in[1]}};
    check_floating("conv2d_input_grad", operands);
    check_geometry("conv2d_input_grad", geometry, shape, in[1].shape(), operands);
    if (in[0].shape() != output_shape(geometry, shape, in[1].shape())) {
      fail("conv2d_input_grad",
           text("the gradient has not the shape of an output for input ", to_string(shape)), operands);
    }
  }
  Tensor forward(Inputs in, Saver& save) const {
    const Tensor out = empty_activation(in[0], shape, format);
    kernels(out.device())
        .conv2d_input_grad(out.view_of_memory(), in[0].view_of_memory(), in[1].view_of_memory(), geometry);
    save(save.needs(1) ? in[0] : Tensor());
    save(in[1]);
    return out;
  }
  Tensors backward(Node& node, Inputs u) const {
    Tensors grads(2);
    const Tensor weight = node.saved(1);
    if (node.needs(0)) grads[0] = conv2d(u[0], weight, {}, geometry);
    if (node.needs(1)) grads[1] = conv2d_weight_grad(node.saved(0), u[0], weight.shape(), geometry);
    return grads;
  }
};

/// dw, linear in g and in x. For a gradient u of it: dg = conv2d(x, u), dx = conv2d_input_grad(g, u).
struct Conv2dWeightGrad {
  static constexpr OpId id = OpId::conv2d_weight_grad;
  Shape shape;
  ConvGeometry geometry;

  void check(Inputs in) const {
    const std::initializer_list<Operand> operands = {{"gradient", in[0]}, {"input", in[1]}};
    check_floating("conv2d_weight_grad", operands);
    check_geometry("conv2d_weight_grad", geometry, in[1].shape(), shape, operands);
    if (in[0].shape() != output_shape(geometry, in[1].shape(), shape)) {
      fail("conv2d_weight_grad",
           text("the gradient has not the shape of an output for weight ", to_string(shape)), operands);
    }
  }
  Tensor forward(Inputs in, Saver& save) const {
    const Tensor out = empty(shape, {.dtype = in[0].dtype(), .device = in[0].device()});
    kernels(out.device())
        .conv2d_weight_grad(out.view_of_memory(), in[0].view_of_memory(), in[1].view_of_memory(), geometry);
    save(save.needs(1) ? in[0] : Tensor());
    save(in[1]);
    return out;
  }
  Tensors backward(Node& node, Inputs u) const {
    Tensors grads(2);
    const Tensor x = node.saved(1);
    if (node.needs(0)) grads[0] = conv2d(x, u[0], {}, geometry);
    if (node.needs(1)) grads[1] = conv2d_input_grad(node.saved(0), u[0], x.shape(), geometry, format_of(x));
    return grads;
  }
};

}  // namespace ops

Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvGeometry& geometry) {
  return call(ops::Conv2d{geometry}, x, weight, bias);
}
Tensor conv2d_input_grad(const Tensor& g, const Tensor& weight, const Shape& shape,
                         const ConvGeometry& geometry, MemoryFormat format) {
  return call(ops::Conv2dInputGrad{shape, geometry, format}, g, weight);
}
Tensor conv2d_weight_grad(const Tensor& g, const Tensor& x, const Shape& shape,
                          const ConvGeometry& geometry) {
  return call(ops::Conv2dWeightGrad{shape, geometry}, g, x);
}

namespace {

struct Case {
  std::string what;
  Shape x, weight;
  ConvGeometry geometry;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"1x1", {2, 3, 4, 5}, {4, 3, 1, 1}, {}},
      {"3x3 padded", {1, 2, 5, 4}, {3, 2, 3, 3}, {.padding = {1, 1}}},
      {"strides and oblong kernel", {2, 2, 6, 5}, {2, 2, 3, 2}, {.stride = {2, 1}, .padding = {0, 1}}},
      {"padded more at the end",
       {1, 2, 5, 4},
       {3, 2, 2, 4},
       {.stride = {1, 2}, .padding = {0, 1}, .padding_after = {1, 1}}},
      {"dilated", {1, 2, 6, 6}, {2, 2, 2, 3}, {.padding = {1, 0}, .dilation = {3, 2}}},
      {"groups", {2, 4, 4, 4}, {6, 2, 3, 3}, {.stride = {2, 2}, .padding = {1, 1}, .groups = 2}},
      {"depthwise", {1, 3, 4, 4}, {3, 1, 3, 3}, {.padding = {1, 1}, .groups = 3}},
      {"no images", {0, 2, 4, 4}, {3, 2, 3, 3}, {}},
  };
  return all;
}

}  // namespace

template <>
std::vector<Sample> samples<OpId::conv2d>() {
  std::vector<Sample> all;
  for (const Case& c : cases()) {
    const auto run = [g = c.geometry](Inputs in) {
      return Tensors{conv2d(in[0], in[1], in.size() > 2 ? in[2] : Tensor(), g)};
    };
    all.push_back({c.what, {uniform_sample(c.x), uniform_sample(c.weight)}, run});
    all.push_back({c.what + ", bias",
                   {uniform_sample(c.x), uniform_sample(c.weight), uniform_sample({c.weight[0]})},
                   run});
  }
  return all;
}

template <>
std::vector<Sample> samples<OpId::conv2d_input_grad>() {
  std::vector<Sample> all;
  for (const Case& c : cases()) {
    all.push_back({c.what,
                   {uniform_sample(ops::output_shape(c.geometry, c.x, c.weight)), uniform_sample(c.weight)},
                   [c](Inputs in) { return Tensors{conv2d_input_grad(in[0], in[1], c.x, c.geometry)}; }});
  }
  return all;
}

template <>
std::vector<Sample> samples<OpId::conv2d_weight_grad>() {
  std::vector<Sample> all;
  for (const Case& c : cases()) {
    all.push_back(
        {c.what,
         {uniform_sample(ops::output_shape(c.geometry, c.x, c.weight)), uniform_sample(c.x)},
         [c](Inputs in) { return Tensors{conv2d_weight_grad(in[0], in[1], c.weight, c.geometry)}; }});
  }
  return all;
}

}  // namespace mezzo
