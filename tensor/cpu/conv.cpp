// Convolutions: as linear maps of pixels where they are that; else prepares the operands for oneDNN, and what
// it does not do runs as matrix products over im2col.
#include <algorithm>
#include <cstring>
#include <utility>

#include "tensor/cpu/kernel_families.h"
#include "tensor/cpu/matmul.h"
#include "tensor/cpu/onednn/products.h"
#include "tensor/cpu/parallel.h"
#include "tensor/cpu/scratch.h"

namespace mezzo::cpu {
namespace {

constexpr int64_t kGrain = 32768;  // elements worth a thread

/// One image and one group of a convolution as matrices. With K = C / groups * KH * KW and P = OH * OW:
/// out [O / groups, P] = weight [O / groups, K] columns [K, P]. Everything is row-major.
template <class T>
struct Im2col {
  const ConvGeometry& geometry;
  Shape input, kernel, output;  ///< [C / groups, H, W], [KH, KW], [OH, OW]
  T* image;
  View out, weight, columns;

  /// Calls f(column, pixel) for every element of `columns`; `pixel`, of the image, is null in the padding.
  /// Channels run in parallel.
  template <class F>
  void for_each_pixel(F&& f) const {
    const int64_t channel_columns = kernel.numel() * output.numel();
    parallel_for(input[0], 1 + kGrain / std::max<int64_t>(1, channel_columns),
                 [&](int64_t begin, int64_t end) {
                   T* column = columns.as<T>() + begin * channel_columns;
                   for (int64_t c = begin; c < end; ++c)
                     for (int64_t kh = 0; kh < kernel[0]; ++kh)
                       for (int64_t kw = 0; kw < kernel[1]; ++kw)
                         for (int64_t oh = 0; oh < output[0]; ++oh)
                           for (int64_t ow = 0; ow < output[1]; ++ow) {
                             const int64_t ih =
                                 oh * geometry.stride[0] - geometry.padding[0] + kh * geometry.dilation[0];
                             const int64_t iw =
                                 ow * geometry.stride[1] - geometry.padding[1] + kw * geometry.dilation[1];
                             const bool inside = ih >= 0 && ih < input[1] && iw >= 0 && iw < input[2];
                             f(*column++, inside ? image + (c * input[1] + ih) * input[2] + iw : nullptr);
                           }
                 });
  }

  void load() const {
    for_each_pixel([](T& column, const T* pixel) { column = pixel ? *pixel : T(0); });
  }

  void add_to_image() const {
    for_each_pixel([](const T& column, T* pixel) {
      if (pixel) *pixel = static_cast<T>(*pixel + column);
    });
  }
};

/// Calls f(const Im2col<T>&) for each image and group of row-major operands.
template <class T, class F>
void for_each_image(const View& out, const View& input, const View& weight, const ConvGeometry& geometry,
                    F&& f) {
  const auto matrix = [](T* data, int64_t rows, int64_t columns) {
    return View{data, dtype_of<T>, {rows, columns}, {columns, 1}};
  };
  const int64_t group_in = weight.shape[1], group_out = weight.shape[0] / geometry.groups;
  const int64_t K = group_in * weight.shape[2] * weight.shape[3], P = out.shape[2] * out.shape[3];
  const Scratch scratch(static_cast<size_t>(K * P) * sizeof(T));
  for (int64_t i = 0; i < out.shape[0] * geometry.groups; ++i) {
    f(Im2col<T>{geometry,
                {group_in, input.shape[2], input.shape[3]},
                {weight.shape[2], weight.shape[3]},
                {out.shape[2], out.shape[3]},
                input.as<T>() + i * group_in * input.shape[2] * input.shape[3],
                matrix(out.as<T>() + i * group_out * P, group_out, P),
                matrix(weight.as<T>() + i % geometry.groups * group_out * K, group_out, K),
                matrix(scratch.as<T>(), K, P)});
  }
}

template <class T>
void conv2d_as(const View& out, const View& input, const View& weight, const View& bias,
               const ConvGeometry& geometry) {
  fill_with_bias(out, bias, 1);
  for_each_image<T>(out, input, weight, geometry, [](const Im2col<T>& part) {
    part.load();
    add_product(part.out, part.weight, part.columns);
  });
}

template <class T>
void conv2d_input_grad_as(const View& grad_input, const View& grad_out, const View& weight,
                          const ConvGeometry& geometry) {
  fill_with_bias(grad_input, {}, 1);
  for_each_image<T>(grad_out, grad_input, weight, geometry, [](const Im2col<T>& part) {
    fill_with_bias(part.columns, {}, 1);
    add_product(part.columns, transposed(part.weight), part.out);
    part.add_to_image();
  });
}

template <class T>
void conv2d_weight_grad_as(const View& grad_weight, const View& grad_out, const View& input,
                           const ConvGeometry& geometry) {
  fill_with_bias(grad_weight, {}, 1);
  for_each_image<T>(grad_out, input, grad_weight, geometry, [](const Im2col<T>& part) {
    part.load();
    add_product(part.weight, part.out, transposed(part.columns));
  });
}

/// Calls f(T{}) with the type of a float32 or float64 convolution.
template <class F>
void dispatch_floating(DType dtype, F&& f) {
  if (dtype == DType::float64)
    f(double{});
  else
    f(float{});
}

/// How a convolution runs: by oneDNN, but for dtypes that it does not have and for empty operands.
struct Method {
  bool by_onednn = false;
  DType dtype;

  Method(const View& out, const View& input, const View& weight) {
    const bool empty = out.numel() == 0 || input.numel() == 0 || weight.numel() == 0;
    const int64_t pixels = out.shape[0] * out.shape[2] * out.shape[3];
    dtype = product_dtype(out.dtype, pixels);
    if constexpr (onednn::available) by_onednn = !empty && onednn::multiplies(dtype, pixels);
    if (!by_onednn) dtype = compute_type(dtype);
  }

  /// The layout in which it takes `view`: its own if it can be, else the one that it is fastest in.
  Shape strides(const View& view) const {
    const Shape row_major = contiguous_strides(view.shape), channels_last = channels_last_strides(view.shape);
    if (!by_onednn) return row_major;
    return has_strides(view, channels_last) || !has_strides(view, row_major) ? channels_last : row_major;
  }

  StagedInput input(const View& view) const { return {view, dtype, strides(view)}; }
  StagedOutput output(const View& view) const { return {view, dtype, strides(view)}; }
};

/// True for a 1x1 convolution of every pixel with all operands' channels side by side: a linear map of
/// pixels, which is faster.
bool is_linear(const View& weight, const View& out, const View& input, const ConvGeometry& geometry) {
  constexpr std::array<int64_t, 2> ones{1, 1}, zeros{0, 0};
  return weight.shape[2] == 1 && weight.shape[3] == 1 && weight.numel() != 0 && out.numel() != 0 &&
         geometry.groups == 1 && geometry.stride == ones && geometry.padding == zeros &&
         geometry.padding_after == zeros && has_strides(out, channels_last_strides(out.shape)) &&
         has_strides(input, channels_last_strides(input.shape)) &&
         has_strides(weight, contiguous_strides(weight.shape));
}

/// Pixels by channels.
View pixels_of(const View& image) {
  const int64_t channels = image.shape[1];
  return {image.data, image.dtype, {image.numel() / channels, channels}, {channels, 1}};
}
View matrix_of(const View& weight) {
  return {weight.data, weight.dtype, {weight.shape[0], weight.shape[1]}, {weight.shape[1], 1}};
}

void conv2d(const View& out, const View& input, const View& weight, const View& bias,
            const ConvGeometry& geometry) {
  if (is_linear(weight, out, input, geometry))
    return kernels({}).linear(pixels_of(out), pixels_of(input), matrix_of(weight), bias, LinearWith::nothing);
  const Method method(out, input, weight);
  const auto x = method.input(input), w = method.input(weight);
  const StagedInput b(bias, method.dtype, {1});
  const auto y = method.output(out);
  if (method.by_onednn) {
    if constexpr (onednn::available) onednn::conv2d(y.view(), x.view(), w.view(), b.view(), geometry);
  } else {
    dispatch_floating(method.dtype,
                      [&]<class T>(T) { conv2d_as<T>(y.view(), x.view(), w.view(), b.view(), geometry); });
  }
  y.finish();
}

void conv2d_input_grad(const View& grad_input, const View& grad_out, const View& weight,
                       const ConvGeometry& geometry) {
  if (is_linear(weight, grad_out, grad_input, geometry)) {
    return kernels({}).linear(pixels_of(grad_input), pixels_of(grad_out), transposed(matrix_of(weight)), {},
                              LinearWith::nothing);
  }
  const Method method(grad_out, grad_input, weight);
  const auto dy = method.input(grad_out), w = method.input(weight);
  const auto dx = method.output(grad_input);
  if (method.by_onednn) {
    if constexpr (onednn::available) onednn::conv2d_input_grad(dx.view(), dy.view(), w.view(), geometry);
  } else {
    dispatch_floating(method.dtype,
                      [&]<class T>(T) { conv2d_input_grad_as<T>(dx.view(), dy.view(), w.view(), geometry); });
  }
  dx.finish();
}

/// A 1x1 convolution over some of the pixels becomes one over all of a view.
void select_pixels(View& input, ConvGeometry& geometry, const View& weight, const View& out) {
  constexpr std::array<int64_t, 2> zeros{0, 0};
  if (weight.shape[2] != 1 || weight.shape[3] != 1 || geometry.padding != zeros ||
      geometry.padding_after != zeros)
    return;
  for (const int side : {0, 1}) {
    int64_t& stride = geometry.stride[static_cast<size_t>(side)];
    input.shape[2 + side] = out.shape[2 + side];
    input.strides[2 + side] *= std::exchange(stride, 1);
  }
}

void conv2d_weight_grad(const View& grad_weight, const View& grad_out, const View& all_input,
                        const ConvGeometry& of_all) {
  // oneDNN 2.6 gathers the pixels of a stride itself, but on AVX2 adds memory that nobody wrote to some
  // gradients where channels do not fill its vectors.
  View input = all_input;
  ConvGeometry geometry = of_all;
  select_pixels(input, geometry, grad_weight, grad_out);
  // oneDNN's own reads float32 operands where they lie; tiles of one product alone do not pay for their
  // packing.
  const bool in_place = onednn::available && input.dtype == DType::float32;
  if (!in_place && is_linear(grad_weight, grad_out, input, geometry)) {
    const View matrix = matrix_of(grad_weight);
    return kernels({}).linear_grad({{}, matrix, {}}, pixels_of(grad_out), {}, pixels_of(input), matrix,
                                   LinearWith::nothing);
  }
  const Method method(grad_out, input, grad_weight);
  const auto dy = method.input(grad_out), x = method.input(input);
  const auto dw = method.output(grad_weight);
  if (method.by_onednn) {
    if constexpr (onednn::available) onednn::conv2d_weight_grad(dw.view(), dy.view(), x.view(), geometry);
  } else {
    dispatch_floating(method.dtype, [&]<class T>(T) {
      conv2d_weight_grad_as<T>(dw.view(), dy.view(), x.view(), geometry);
    });
  }
  dw.finish();
}

}  // namespace

void add_conv(Kernels& table) {
  table.conv2d = &conv2d;
  table.conv2d_input_grad = &conv2d_input_grad;
  table.conv2d_weight_grad = &conv2d_weight_grad;
}

}  // namespace mezzo::cpu
