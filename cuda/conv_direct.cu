// Convolutions by their definition, for what cuDNN has no engine for: one thread an element of the result.
#include "cuda/conv.h"
#include "cuda/element.cuh"

namespace mezzo::cuda {
namespace {

/// A view of four dimensions as an argument of a kernel.
struct Tensor4 {
  void* data;
  DType dtype;
  int64_t sizes[4], strides[4];

  explicit Tensor4(const View& view) : data(view.data), dtype(view.dtype) {
    for (int d = 0; d < 4; ++d) {
      sizes[d] = view.shape[d];
      strides[d] = view.strides[d];
    }
  }

  __device__ int64_t numel() const { return sizes[0] * sizes[1] * sizes[2] * sizes[3]; }
  /// The indices of element i in row-major order.
  __device__ void split(int64_t i, int64_t (&index)[4]) const {
    for (int d = 3; d >= 0; --d) {
      index[d] = i % sizes[d];
      i /= sizes[d];
    }
  }
  __device__ int64_t place(int64_t a, int64_t b, int64_t c, int64_t d) const {
    return a * strides[0] + b * strides[1] + c * strides[2] + d * strides[3];
  }
  template <class T>
  __device__ T at(int64_t a, int64_t b, int64_t c, int64_t d) const {
    return load<T>(data, dtype, place(a, b, c, d));
  }
  template <class T>
  __device__ void set(const int64_t (&i)[4], T value) const {
    store(data, dtype, place(i[0], i[1], i[2], i[3]), value);
  }
};

/// A convolution as an argument of a kernel.
struct Operands {
  Tensor4 out, input, weight;
  const void* bias;
  int64_t bias_stride;
  ConvGeometry geometry;

  explicit Operands(const Convolution& conv)
      : out(conv.out),
        input(conv.input),
        weight(conv.weight),
        bias(conv.bias.data),
        bias_stride(conv.bias.given() ? conv.bias.strides[0] : 0),
        geometry(conv.geometry) {}

  __device__ int64_t group_out() const { return weight.sizes[0] / geometry.groups; }
  /// The row (axis 0) or column of the input that cell k of window o covers; outside it is padding.
  __device__ int64_t covered(int64_t o, int64_t k, size_t axis) const {
    return o * geometry.stride[axis] - geometry.padding[axis] + k * geometry.dilation[axis];
  }
  __device__ bool inside(int64_t h, int64_t w) const {
    return h >= 0 && h < input.sizes[2] && w >= 0 && w < input.sizes[3];
  }
  /// The window whose cell k covers row or column i, or a negative number if there is none.
  __device__ int64_t window(int64_t i, int64_t k, size_t axis) const {
    const int64_t from = i + geometry.padding[axis] - k * geometry.dilation[axis];
    const int64_t o = from / geometry.stride[axis];
    return from % geometry.stride[axis] == 0 && o < out.sizes[2 + axis] ? o : -1;
  }
};

/// out[n, o, i, j] = bias[o] + sum over c, u, v of input[n, c, ...] weight[o, c, u, v]
template <class T>
__global__ void forward(Operands conv) {
  for (int64_t i = first_item(); i < conv.out.numel(); i += grid_stride()) {
    int64_t at[4];
    conv.out.split(i, at);
    const int64_t first = at[1] / conv.group_out() * conv.weight.sizes[1];  // channel of the group
    T sum = conv.bias ? load<T>(conv.bias, conv.out.dtype, at[1] * conv.bias_stride) : T(0);
    for (int64_t c = 0; c < conv.weight.sizes[1]; ++c)
      for (int64_t u = 0; u < conv.weight.sizes[2]; ++u)
        for (int64_t v = 0; v < conv.weight.sizes[3]; ++v) {
          const int64_t h = conv.covered(at[2], u, 0), w = conv.covered(at[3], v, 1);
          if (conv.inside(h, w))
            sum += conv.input.at<T>(at[0], first + c, h, w) * conv.weight.at<T>(at[1], c, u, v);
        }
    conv.out.set(at, sum);
  }
}

/// input[n, c, h, w] = sum over o, u, v of out[n, o, ...] weight[o, c, u, v], of the windows that cover (h,
/// w)
template <class T>
__global__ void input_grad(Operands conv) {
  for (int64_t i = first_item(); i < conv.input.numel(); i += grid_stride()) {
    int64_t at[4];
    conv.input.split(i, at);
    const int64_t c = at[1] % conv.weight.sizes[1], first = at[1] / conv.weight.sizes[1] * conv.group_out();
    T sum = 0;
    for (int64_t o = first; o < first + conv.group_out(); ++o)
      for (int64_t u = 0; u < conv.weight.sizes[2]; ++u)
        for (int64_t v = 0; v < conv.weight.sizes[3]; ++v) {
          const int64_t row = conv.window(at[2], u, 0), column = conv.window(at[3], v, 1);
          if (row >= 0 && column >= 0)
            sum += conv.out.at<T>(at[0], o, row, column) * conv.weight.at<T>(o, c, u, v);
        }
    conv.input.set(at, sum);
  }
}

/// weight[o, c, u, v] = sum over n, i, j of out[n, o, i, j] input[n, c, ...]
template <class T>
__global__ void weight_grad(Operands conv) {
  for (int64_t i = first_item(); i < conv.weight.numel(); i += grid_stride()) {
    int64_t at[4];
    conv.weight.split(i, at);
    const int64_t c = at[0] / conv.group_out() * conv.weight.sizes[1] + at[1];
    T sum = 0;
    for (int64_t n = 0; n < conv.out.sizes[0]; ++n)
      for (int64_t row = 0; row < conv.out.sizes[2]; ++row)
        for (int64_t column = 0; column < conv.out.sizes[3]; ++column) {
          const int64_t h = conv.covered(row, at[2], 0), w = conv.covered(column, at[3], 1);
          if (conv.inside(h, w)) sum += conv.out.at<T>(n, at[0], row, column) * conv.input.at<T>(n, c, h, w);
        }
    conv.weight.set(at, sum);
  }
}

template <class T>
void conv_direct_as(const Convolution& conv) {
  const Grid grid = grid_for(conv.result().numel());
  const Operands operands(conv);
  switch (conv.pass) {
    case ConvPass::forward:
      return launch(forward<T>, grid, operands);
    case ConvPass::input_grad:
      return launch(input_grad<T>, grid, operands);
    case ConvPass::weight_grad:
      return launch(weight_grad<T>, grid, operands);
  }
}

}  // namespace

void conv_direct(const Convolution& conv) {
  if (conv.result().numel() == 0) return;
  (conv.out.dtype == DType::float64 ? conv_direct_as<double> : conv_direct_as<float>)(conv);
}

}  // namespace mezzo::cuda
