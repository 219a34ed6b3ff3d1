// Max pooling: max_pool2d and its gradient.
//   N images, C channels, H x W in, OH x OW out, KH x KW kernel; a window's cells are numbered u * KW + v
// Backward needs no more than the number of the cell that won in each window: a byte for up to 256 cells.
#include "autograd/call.h"
#include "autograd/ops/along.h"
#include "autograd/ops/check.h"
#include "autograd/samples.h"
#include "tensor/tensor_impl.h"

namespace mezzo {

namespace ops {

namespace {

constexpr int64_t kByteCells = 256;

/// Windows along an axis of `size` elements.
///   floor((size + 2 padding - dilation (K - 1) - 1) / stride) + 1; with ceil_mode rounded up, but the last
///   window must begin inside the input or the padding before it
int64_t window_count(const PoolGeometry& g, size_t axis, int64_t size, bool ceil_mode) {
  const int64_t span = g.dilation[axis] * (g.kernel[axis] - 1) + 1;
  const int64_t reach = size + 2 * g.padding[axis] - span + (ceil_mode ? g.stride[axis] - 1 : 0);
  if (reach < 0) return 0;
  const int64_t count = reach / g.stride[axis] + 1;
  return ceil_mode && (count - 1) * g.stride[axis] >= size + g.padding[axis] ? count - 1 : count;
}

/// Throws Error unless kernel, stride, padding and dilation are sizes of windows.
void check_geometry(std::string_view op, const PoolGeometry& g, std::initializer_list<Operand> operands) {
  for (size_t axis = 0; axis < 2; ++axis) {
    if (g.kernel[axis] < 1 || g.stride[axis] < 1 || g.dilation[axis] < 1 || g.padding[axis] < 0)
      fail(op, "kernel, stride and dilation must be at least 1, padding at least 0", operands);
    if (g.padding[axis] > g.kernel[axis] / 2) {
      fail(op, text("padding ", g.padding[axis], " is more than half of the kernel's ", g.kernel[axis]),
           operands);
    }
  }
}

/// Throws Error if one of the `count` windows along an axis of `size` elements has none of them.
void check_windows(const PoolGeometry& g, size_t axis, int64_t size, int64_t count, const Tensor& x) {
  const int64_t span = g.dilation[axis] * (g.kernel[axis] - 1) + 1;
  if (count < 1) {
    fail("max_pool2d", text("the kernel spans ", span, " but the padded input ", size + 2 * g.padding[axis]),
         {{"input", x}});
  }
  for (int64_t i = 0; i < count; ++i) {
    const int64_t start = i * g.stride[axis] - g.padding[axis], dilation = g.dilation[axis];
    const int64_t first = start < 0 ? start + (-start + dilation - 1) / dilation * dilation : start;
    if (first >= std::min(size, start + span)) {
      fail("max_pool2d",
           text("window ", i, " has no element of the input, as its cells are ", dilation, " apart"),
           {{"input", x}});
    }
  }
}

/// For each window the position of its cell among the elements of an image: [N, C, OH, OW], int64.
Tensor positions(const Tensor& cells, const PoolGeometry& g, int64_t width) {
  const Tensor cell = cells.to(int64);
  const auto starts = [&](int d) {
    const auto axis = static_cast<size_t>(d - 2);
    const Tensor start = arange(Scalar(-g.padding[axis]), cells.size(d) * g.stride[axis] - g.padding[axis],
                                Scalar(g.stride[axis]), {.device = cells.device()});
    return along(start, d, 4);
  };
  const Tensor row = starts(2) + floor_divide(cell, g.kernel[1]) * g.dilation[0],
               column = starts(3) + remainder(cell, g.kernel[1]) * g.dilation[1];
  return row * width + column;
}

}  // namespace

struct MaxPool2d {
  static constexpr OpId id = OpId::max_pool2d;
  PoolGeometry geometry;
  bool ceil_mode;

  void check(Inputs in) const {
    const Tensor& x = in[0];
    if (x.dim() != 4)
      fail("max_pool2d", text("input must be [N, C, H, W] but has ", x.dim(), " dimensions"), {{"input", x}});
    check_floating("max_pool2d", {{"input", x}});
    check_geometry("max_pool2d", geometry, {{"input", x}});
    if (x.size(1) == 0) fail("max_pool2d", "input has no channels", {{"input", x}});
    for (int d = 2; d < 4; ++d)
      check_windows(geometry, static_cast<size_t>(d - 2), x.size(d), count(x, d), x);
  }
  Tensor forward(Inputs in, Saver& save) const {
    const Tensor& x = in[0];
    const bool bytes = geometry.kernel[0] * geometry.kernel[1] <= kByteCells;
    const auto make = [&](DType dtype) {
      return empty({x.size(0), x.size(1), count(x, 2), count(x, 3)},
                   {.dtype = dtype, .device = x.device(), .format = format_of(x)});
    };
    const Tensor out = make(x.dtype()), cells = save.recording() ? make(bytes ? uint8 : int32) : Tensor();
    kernels(x.device()).max_pool2d(out.view_of_memory(), view_or_none(cells), x.view_of_memory(), geometry);
    save(cells);
    return out;
  }
  /// In the layout of the output, which is the input's: the gradient's may have been lost on its way.
  Tensors backward(Node& node, Inputs g) const {
    const Tensor cells = node.saved(0);
    return {max_pool2d_grad(g[0], cells, node.input_info(0).shape, geometry, format_of(cells))};
  }

 private:
  int64_t count(const Tensor& x, int d) const {
    return window_count(geometry, static_cast<size_t>(d - 2), x.size(d), ceil_mode);
  }
};

/// Linear in g: its own gradient picks the elements that won.
struct MaxPool2dGrad {
  static constexpr OpId id = OpId::max_pool2d_grad;
  Shape shape;
  PoolGeometry geometry;
  MemoryFormat format;

  void check(Inputs in) const {
    const Tensor &g = in[0], &cells = in[1];
    check_floating("max_pool2d_grad", {{"gradient", g}});
    check_geometry("max_pool2d_grad", geometry, {{"gradient", g}, {"cells", cells}});
    if (!is_integral(cells.dtype()))
      fail("max_pool2d_grad", "cells must have an integer dtype", {{"gradient", g}, {"cells", cells}});
    if (g.dim() != 4 || g.shape() != cells.shape() || shape.dim() != 4 || shape[0] != g.size(0) ||
        shape[1] != g.size(1)) {
      fail("max_pool2d_grad",
           text("gradient and cells must have the shape of an output for input ", to_string(shape)),
           {{"gradient", g}, {"cells", cells}});
    }
  }
  Tensor forward(Inputs in, Saver& save) const {
    const Tensor out = empty(shape, {.dtype = in[0].dtype(), .device = in[0].device(), .format = format});
    kernels(out.device())
        .max_pool2d_grad(out.view_of_memory(), in[0].view_of_memory(), in[1].view_of_memory(), geometry);
    save(in[1]);
    return out;
  }
  Tensors backward(Node& node, Inputs u) const {
    const Tensor cells = node.saved(0);
    const Tensor at = positions(cells, geometry, shape[3]).flatten(2),
                 picked = gather(u[0].flatten(2), 2, at);
    return {reshape(picked, cells.shape()), {}};
  }
};

}  // namespace ops

Tensor max_pool2d(const Tensor& x, Size2 kernel, const MaxPool2dOptions& options) {
  const auto pair = [](Size2 size) { return std::array<int64_t, 2>{size.height, size.width}; };
  const PoolGeometry geometry{pair(kernel), pair(options.stride.value_or(kernel)), pair(options.padding),
                              pair(options.dilation)};
  return call(ops::MaxPool2d{geometry, options.ceil_mode}, x);
}
Tensor max_pool2d_grad(const Tensor& g, const Tensor& cells, const Shape& shape, const PoolGeometry& geometry,
                       MemoryFormat format) {
  return call(ops::MaxPool2dGrad{shape, geometry, format}, g, cells);
}

template <>
std::vector<Sample> samples<OpId::max_pool2d>() {
  const auto pool = [](Size2 kernel, const MaxPool2dOptions& options) {
    return [=](Inputs in) { return Tensors{max_pool2d(in[0], kernel, options)}; };
  };
  return {{"2x2", {uniform_sample({2, 3, 4, 6})}, pool(2, {})},
          {"overlapping, padded", {uniform_sample({2, 2, 5, 4})}, pool(3, {.stride = 2, .padding = 1})},
          {"oblong, dilated",
           {uniform_sample({1, 3, 6, 7})},
           pool({2, 3}, {.stride = 1, .padding = {1, 0}, .dilation = {2, 3}})},
          {"over the end", {uniform_sample({2, 2, 5, 7})}, pool(2, {.stride = 3, .ceil_mode = true})},
          {"no images", {uniform_sample({0, 3, 4, 4})}, pool(2, {})}};
}

template <>
std::vector<Sample> samples<OpId::max_pool2d_grad>() {
  const auto cells = [](const Shape& shape, int64_t count) {
    std::vector<double> values;
    for (int64_t i = 0; i < shape.numel(); ++i) values.push_back(static_cast<double>(i * 7 % 5 % count));
    return tensor(values, shape, {.dtype = uint8});
  };
  const auto to = [](const Shape& shape, const PoolGeometry& geometry) {
    return [=](Inputs in) { return Tensors{max_pool2d_grad(in[0], in[1], shape, geometry)}; };
  };
  return {{"2x2",
           {uniform_sample({2, 3, 2, 3}), cells({2, 3, 2, 3}, 4)},
           to({2, 3, 4, 6}, {.kernel = {2, 2}, .stride = {2, 2}})},
          {"overlapping",
           {uniform_sample({2, 2, 2, 3}), cells({2, 2, 2, 3}, 4)},
           to({2, 2, 3, 4}, {.kernel = {2, 2}})},
          {"no images",
           {uniform_sample({0, 3, 2, 2}), cells({0, 3, 2, 2}, 4)},
           to({0, 3, 4, 4}, {.kernel = {2, 2}, .stride = {2, 2}})}};
}

}  // namespace mezzo
