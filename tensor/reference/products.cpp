// Matrix products and convolutions by their definitions, over row-major copies of the operands.
#include <type_traits>
#include <vector>

#include "tensor/reference/element.h"
#include "tensor/reference/kernel_families.h"

namespace mezzo::reference {
namespace {

/// Type of the sums of products of T: wide enough that rounding happens once, in save().
template <class T>
using Sum = std::conditional_t<std::is_integral_v<T>, int64_t,
                               std::conditional_t<std::is_same_v<T, double>, double, float>>;

/// The elements of a view in row-major order; zeros for a view that is not given.
template <class S>
std::vector<S> values(const View& view) {
  std::vector<S> result(static_cast<size_t>(view.numel()));
  for (size_t i = 0; view.given() && i < result.size(); ++i)
    result[i] = load<S>(view, offset_of(view, static_cast<int64_t>(i)));
  return result;
}

template <class S>
void save(const View& view, const std::vector<S>& values) {
  for (size_t i = 0; i < values.size(); ++i) store(view, offset_of(view, static_cast<int64_t>(i)), values[i]);
}

/// out[m, n] = sum over k of a[m, k] b[k, n], + bias[n], in each batch.
template <class S>
void matmul_as(const View& out, const View& a, const View& b, const View& bias) {
  const int last = out.shape.dim() - 1;
  const auto M = static_cast<size_t>(out.shape[last - 1]), N = static_cast<size_t>(out.shape[last]);
  const auto K = static_cast<size_t>(a.shape[last]);
  const std::vector<S> x = values<S>(a), y = values<S>(b), z = values<S>(bias);
  std::vector<S> sums(static_cast<size_t>(out.numel()));
  for (size_t row = 0; row * N < sums.size(); ++row)  // of all batches
    for (size_t n = 0; n < N; ++n) {
      S& sum = sums[row * N + n];
      for (size_t k = 0; k < K; ++k) sum += x[row * K + k] * y[(row / M * K + k) * N + n];
      if (bias.given()) sum += z[n];
    }
  save(out, sums);
}

/// Calls term(i, w, o) for every product in the convolution out[o] += input[i] * weight[w]; i, w and o count
/// elements in row-major order. The gradients sum the same products: input[i] += out[o] * weight[w] and
/// weight[w] += out[o] * input[i].
template <class Term>
void for_each_term(const Shape& out, const Shape& input, const Shape& weight, const ConvGeometry& geometry,
                   Term&& term) {
  const auto& [stride, padding, dilation, groups, after] = geometry;  // `after` shows in out's shape
  const int64_t group_in = weight[1], group_out = weight[0] / groups;
  size_t o = 0;
  for (int64_t n = 0; n < out[0]; ++n)
    for (int64_t oc = 0; oc < out[1]; ++oc)
      for (int64_t oh = 0; oh < out[2]; ++oh)
        for (int64_t ow = 0; ow < out[3]; ++ow, ++o)
          for (int64_t c = 0; c < group_in; ++c)
            for (int64_t kh = 0; kh < weight[2]; ++kh)
              for (int64_t kw = 0; kw < weight[3]; ++kw) {
                const int64_t ic = oc / group_out * group_in + c;
                const int64_t ih = oh * stride[0] - padding[0] + kh * dilation[0];
                const int64_t iw = ow * stride[1] - padding[1] + kw * dilation[1];
                if (ih < 0 || ih >= input[2] || iw < 0 || iw >= input[3]) continue;  // in the padding: zero
                const int64_t i = ((n * input[1] + ic) * input[2] + ih) * input[3] + iw;
                const int64_t w = ((oc * group_in + c) * weight[2] + kh) * weight[3] + kw;
                term(static_cast<size_t>(i), static_cast<size_t>(w), o);
              }
}

template <class S>
void conv2d_as(const View& out, const View& input, const View& weight, const View& bias,
               const ConvGeometry& geometry) {
  const std::vector<S> x = values<S>(input), y = values<S>(weight);
  View start = bias;  // every pixel's sum starts from its channel's bias
  start.shape = out.shape;
  start.strides = {0, bias.given() ? bias.strides[0] : 0, 0, 0};
  std::vector<S> sums = values<S>(start);
  for_each_term(out.shape, input.shape, weight.shape, geometry,
                [&](size_t i, size_t w, size_t o) { sums[o] += x[i] * y[w]; });
  save(out, sums);
}

template <class S>
void conv2d_input_grad_as(const View& grad_input, const View& grad_out, const View& weight,
                          const ConvGeometry& geometry) {
  const std::vector<S> g = values<S>(grad_out), y = values<S>(weight);
  std::vector<S> sums(static_cast<size_t>(grad_input.numel()));
  for_each_term(grad_out.shape, grad_input.shape, weight.shape, geometry,
                [&](size_t i, size_t w, size_t o) { sums[i] += g[o] * y[w]; });
  save(grad_input, sums);
}

template <class S>
void conv2d_weight_grad_as(const View& grad_weight, const View& grad_out, const View& input,
                           const ConvGeometry& geometry) {
  const std::vector<S> g = values<S>(grad_out), x = values<S>(input);
  std::vector<S> sums(static_cast<size_t>(grad_weight.numel()));
  for_each_term(grad_out.shape, input.shape, grad_weight.shape, geometry,
                [&](size_t i, size_t w, size_t o) { sums[w] += g[o] * x[i]; });
  save(grad_weight, sums);
}

/// x, or gelu of it.
std::vector<double> before_product(const View& x, LinearWith with) {
  std::vector<double> values_of_x = values<double>(x);
  if (with == LinearWith::gelu_before)
    for (double& v : values_of_x) v = pointwise::Gelu::value(v);
  return values_of_x;
}

void linear(const View& out, const View& x, const View& weight, const View& bias, LinearWith with) {
  const View transposed{
      weight.data, weight.dtype, {weight.shape[1], weight.shape[0]}, {weight.strides[1], weight.strides[0]}};
  std::vector<double> gelu;
  View input = x;
  if (with == LinearWith::gelu_before) {
    gelu = before_product(x, with);
    input = {gelu.data(), DType::float64, x.shape, contiguous_strides(x.shape)};
  }
  dispatch(out.dtype, [&]<class T>(T) { matmul_as<Sum<T>>(out, input, transposed, bias); });
  for (int64_t i = 0; with == LinearWith::relu_after && i < out.numel(); ++i) {
    if (get(out, i) < 0) set(out, i, 0);
  }
}

void linear_grad(const LinearGrads& grads, const View& grad_out, const View& out, const View& x,
                 const View& weight, LinearWith with) {
  const int64_t P = grad_out.shape[0], C = weight.shape[1], O = weight.shape[0];
  std::vector<double> g = values<double>(grad_out);
  for (int64_t i = 0; with == LinearWith::relu_after && i < P * O; ++i) {
    if (get(out, i) == 0) g[static_cast<size_t>(i)] = 0;
  }
  const auto at = [&](int64_t p, int64_t o) { return g[static_cast<size_t>(p * O + o)]; };
  for (int64_t i = 0; grads.x.given() && i < P * C; ++i) {
    double sum = 0;
    for (int64_t o = 0; o < O; ++o) sum += at(i / C, o) * get(weight, o * C + i % C);
    set(grads.x, i, with == LinearWith::gelu_before ? sum * pointwise::Gelu::slope(get(x, i)) : sum);
  }
  const std::vector<double> a = x.given() ? before_product(x, with) : std::vector<double>();
  for (int64_t i = 0; grads.weight.given() && i < O * C; ++i) {
    double sum = 0;
    for (int64_t p = 0; p < P; ++p) sum += at(p, i / C) * a[static_cast<size_t>(p * C + i % C)];
    set(grads.weight, i, sum);
  }
  for (int64_t o = 0; grads.bias.given() && o < O; ++o) {
    double sum = 0;
    for (int64_t p = 0; p < P; ++p) sum += at(p, o);
    set(grads.bias, o, sum);
  }
}

}  // namespace

void add_products(Kernels& table) {
  table.matmul = [](const View& out, const View& a, const View& b, const View& bias) {
    dispatch(out.dtype, [&]<class T>(T) { matmul_as<Sum<T>>(out, a, b, bias); });
  };
  table.linear = linear;
  table.linear_grad = linear_grad;
  table.conv2d = [](const View& out, const View& input, const View& weight, const View& bias,
                    const ConvGeometry& geometry) {
    dispatch(out.dtype, [&]<class T>(T) { conv2d_as<Sum<T>>(out, input, weight, bias, geometry); });
  };
  table.conv2d_input_grad = [](const View& grad_input, const View& grad_out, const View& weight,
                               const ConvGeometry& geometry) {
    dispatch(grad_input.dtype,
             [&]<class T>(T) { conv2d_input_grad_as<Sum<T>>(grad_input, grad_out, weight, geometry); });
  };
  table.conv2d_weight_grad = [](const View& grad_weight, const View& grad_out, const View& input,
                                const ConvGeometry& geometry) {
    dispatch(grad_weight.dtype,
             [&]<class T>(T) { conv2d_weight_grad_as<Sum<T>>(grad_weight, grad_out, input, geometry); });
  };
}

}  // namespace mezzo::reference
