// The seam between math and device: one table of function pointers per device, over plain views.
//
// Rules of a kernel. It reads and writes memory that it was given and allocates no tensors. It knows nothing
// of autograd. It takes any strides (0 where a tensor was expanded), 0-d and empty views; outputs never
// overlap themselves or an input, but for pointwise kernels, whose output may be an input exactly. The caller
// has checked shapes and dtypes: kernels throw nothing but "this device has no such kernel". dtype is
// dispatched once, at the top; arithmetic runs in compute_type(dtype), sums of 16-bit values in float.
//
// Long: it is the list of all that a device can do.
//
// tensor/reference/ fills the table with the plainest loops and is where to read what an entry means.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "tensor/device.h"
#include "tensor/dtype.h"
#include "tensor/pointwise.h"
#include "tensor/scalar.h"
#include "tensor/scale_rule.h"
#include "tensor/shape.h"

namespace mezzo {

/// A tensor as kernels see it. Strides count elements. `data == nullptr` stands for "not given".
struct View {
  void* data = nullptr;
  DType dtype = DType::float32;
  Shape shape, strides;
  bool on_host = false;  ///< one number in the CPU's memory, for kernels of a device with memory of its own

  bool given() const { return data != nullptr; }
  int64_t numel() const { return shape.numel(); }
  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

/// Reductions of `in` over every dimension where `out` has size 1 and `in` has not. argmax and argmin
/// write int64 positions along the one reduced dimension, the first of equals. mean divides before it rounds
/// to out's dtype.
enum class Reduction : uint8_t { sum, mean, amax, amin, any, all, argmax, argmin };
inline constexpr int kReductions = 8;

/// Stride, padding, dilation as {height, width}. `padding` zeros stand before the first row and column and
/// after the last, where `padding_after` are added to them.
struct ConvGeometry {
  std::array<int64_t, 2> stride{1, 1}, padding{0, 0}, dilation{1, 1};
  int64_t groups = 1;
  std::array<int64_t, 2> padding_after{0, 0};
};

/// Windows of a pooling, as {height, width}: window (i, j) has the cells (u, v) at row i * stride + u *
/// dilation - padding of the input, and likewise its columns. Cells outside the input count for nothing.
struct PoolGeometry {
  std::array<int64_t, 2> kernel{1, 1}, stride{1, 1}, padding{0, 0}, dilation{1, 1};
};

/// Operands of attention: query [..., L, E], key [..., S, E], value [..., S, EV], mask [..., L, S], batch
/// dimensions equal (expanded by stride 0). scores = query key^T * scale + mask; where a bool mask is false,
/// or is_causal and the key comes after the query, they are -infinity. The mask may be not given.
struct AttentionOperands {
  View query, key, value, mask;
  double scale;
  bool is_causal;
};

/// Counter-based random numbers: element i is drawn from block i / 4 after `offset` of the stream `seed`. In
/// a captured graph `origin` is where the device finds the seed and what the offset is counted from.
struct PhiloxState {
  uint64_t seed = 0, offset = 0;
  const uint64_t* origin = nullptr;
};

/// What changes from step to step lies on the device, so that a captured step can be replayed: `lr` is 0-d
/// float64; with a `loss_scale` (0-d float32) gradients are unscaled first, and stay so; if `found_inf` (0-d
/// float32) is given and not 0, nothing changes.
struct StepState {
  View lr, loss_scale{}, found_inf{};
};

/// One parameter's tensors for Adam: all of one shape; param and grad floating, moments in float32 or
/// float64. `steps` (0-d int64) counts the parameter's steps: the update adds one, and takes the sum as t.
/// `cast`, of param's strides and another dtype, is written with what param becomes.
struct AdamTensors {
  View param, grad, exp_avg, exp_avg_sq, max_exp_avg_sq, steps;  // max_exp_avg_sq only with amsgrad
  View cast{};                                                   // may be not given
};
/// weight_decay 0 leaves the parameter out of the gradient, also an infinite one. If `decoupled` (AdamW) it
/// multiplies the parameter by 1 - lr * weight_decay first, instead of having a part in the gradient.
struct AdamArgs {
  StepState state;
  double beta1, beta2, eps, weight_decay;
  bool decoupled, maximize;
};

/// As AdamTensors; buffer and steps only with momentum. The buffer takes the first gradient as it is.
struct SgdTensors {
  View param, grad, momentum_buffer, steps, cast{};
};
struct SgdArgs {
  StepState state;
  double momentum, dampening, weight_decay;  // weight_decay as in AdamArgs
  bool nesterov, maximize;
};

/// Columns of a matrix as relu((x - mean) * invstd * weight + bias), or as they are if mean is not given; the
/// last two may be not given.
struct NormRelu {
  View mean, invstd, weight, bias;
};

/// Results of conv1x1_stats_grad: those of the columns are [O] or [C]; the first three may be not given, the
/// last two are with a mean, and then so is x.
struct Conv1x1Grads {
  View x, weight, bias, norm_weight, norm_bias;
};

/// What a linear map does besides: gelu of its input, or the larger of its result and 0.
enum class LinearWith : uint8_t { nothing, gelu_before, relu_after };

/// Results of linear_grad, each of which may be not given.
struct LinearGrads {
  View x, weight, bias;
};

/// Operands and result have out's shape and any dtypes: operands are converted to `compute` (float64,
/// float32, an integer type or bool), the op runs in it, and the result is converted to out's dtype.
using PointwiseKernel = void (*)(DType compute, const View& out, std::span<const View> in);

/// Kernels of one pointwise op with operands x. An operand that a slope does not read is a View that is not
/// given.
struct PointwiseKernels {
  PointwiseKernel value = nullptr;  ///< out = value(x...)
  /// slope[i]: out = g * slope_i(x...), in = {g, x...}; a unary op has in = {g, what its slope reads}.
  std::array<PointwiseKernel, kMaxArity> slope{};
  /// curvature[i][j]: out = h * g * d slope_i / d x_j, in = {h, g, x...}.
  std::array<std::array<PointwiseKernel, kMaxArity>, kMaxArity> curvature{};
};

struct Kernels {
  std::array<PointwiseKernels, kPointwiseOps> pointwise{};

  void (*copy)(const View& out, const View& in) = nullptr;  ///< converts dtypes; `in` has out's shape
  void (*fill)(const View& out, Scalar value) = nullptr;
  void (*arange)(const View& out, Scalar start, Scalar step) = nullptr;  ///< out is 1-d: start + i * step
  void (*uniform)(const View& out, PhiloxState state, double low, double high) = nullptr;  ///< [low, high)
  void (*normal)(const View& out, PhiloxState state, double mean, double std) = nullptr;

  std::array<void (*)(const View& out, const View& in), kReductions> reduce{};

  /// Along dimension dim: exp(in - max) / sum of that, or in - max - log(sum of exp(in - max)) if `log`. Both
  /// floating.
  void (*softmax)(const View& out, const View& in, int dim, bool log) = nullptr;
  /// From the result y of softmax and its gradient g: y * (g - sum(g * y)), or g - exp(y) * sum(g) if `log`.
  void (*softmax_grad)(const View& grad_in, const View& g, const View& y, int dim, bool log) = nullptr;

  /// out[.., i, ..] = in[.., index[.., i, ..], ..], both of one dtype. index is int64 and has out's shape; in
  /// may be longer in the other dimensions than dim.
  void (*gather)(const View& out, const View& in, const View& index, int dim) = nullptr;
  /// out[.., index[.., i, ..], ..] = source[.., i, ..], in order of i; both of one dtype. out may be longer
  /// in the other dimensions.
  void (*scatter)(const View& out, const View& index, const View& source, int dim) = nullptr;
  /// out[.., index[.., i, ..], ..] += source[.., i, ..], in order of i. out has the compute type of source's
  /// dtype, and may be longer in the other dimensions.
  void (*scatter_add)(const View& out, const View& index, const View& source, int dim) = nullptr;

  /// out[..., M, N] = a[..., M, K] b[..., K, N] (+ bias[N]); batch dimensions are equal (expanded by stride
  /// 0). All of one floating or integer dtype.
  void (*matmul)(const View& out, const View& a, const View& b, const View& bias) = nullptr;

  /// out [P, O] = f(x) [P, C] weight[O, C]ᵀ + bias[O] (which may be not given), where f is gelu or nothing,
  /// or the larger of that and 0. All of one floating dtype.
  void (*linear)(const View& out, const View& x, const View& weight, const View& bias,
                 LinearWith with) = nullptr;
  /// With G = grad_out, or after a relu where `out` is not 0: x = G weight f'(x), weight = Gᵀ f(x), bias =
  /// sum of G's rows. `out` is given for relu, x where it is read.
  void (*linear_grad)(const LinearGrads& grads, const View& grad_out, const View& out, const View& x,
                      const View& weight, LinearWith with) = nullptr;

  /// input [N, C, H, W], weight [O, C / groups, KH, KW], bias [O] or not given, out [N, O, OH, OW]; each in
  /// the layout that its strides say, row-major and channels-last at the speed of the library below.
  void (*conv2d)(const View& out, const View& input, const View& weight, const View& bias,
                 const ConvGeometry& geometry) = nullptr;
  void (*conv2d_input_grad)(const View& grad_input, const View& grad_out, const View& weight,
                            const ConvGeometry& geometry) = nullptr;
  void (*conv2d_weight_grad)(const View& grad_weight, const View& grad_out, const View& input,
                             const ConvGeometry& geometry) = nullptr;

  /// out [..., L, EV] = softmax(scores) value, lse [..., L, 1] = log of the sum of exp(scores) of each query,
  /// in the compute type. A query whose scores are all -infinity has 0.
  void (*attention)(const View& out, const View& lse, const AttentionOperands& operands) = nullptr;
  /// With p = exp(scores - lse), c = sum of grad_out * out of each query, s = p * (grad_out value^T - c):
  /// grad_value = p^T grad_out, grad_query = s key * scale, grad_key = s^T query * scale.
  void (*attention_grad)(const View& grad_query, const View& grad_key, const View& grad_value,
                         const View& grad_out, const View& out, const View& lse,
                         const AttentionOperands& operands) = nullptr;

  /// out[n, c, i, j] = the largest element of input[n, c] in window (i, j): the first of equals, but NaN if
  /// one is, the last such. cells: where in its window it is, u * KW + v, in any integer dtype; may be not
  /// given. Every window has an element.
  void (*max_pool2d)(const View& out, const View& cells, const View& input,
                     const PoolGeometry& geometry) = nullptr;
  /// grad_input = for each element the sum of grad_out over the windows whose cell it is. A cell that no
  /// window has, or that is outside the input, counts for nothing.
  void (*max_pool2d_grad)(const View& grad_input, const View& grad_out, const View& cells,
                          const PoolGeometry& geometry) = nullptr;

  /// mean and biased variance of each channel of input [N, C, ...], by merged or shifted sums so that a large
  /// mean does no harm; both [C], in float32 for 16-bit inputs, else in the input's dtype.
  void (*batch_norm_statistics)(const View& mean, const View& var, const View& input) = nullptr;
  /// out = (input - mean) * invstd * weight + bias; mean, invstd, weight, bias are [C]; the last two may be
  /// not given.
  void (*batch_norm)(const View& out, const View& input, const View& mean, const View& invstd,
                     const View& weight, const View& bias) = nullptr;
  /// With xhat = (input - mean) * invstd, n values a channel: grad_bias = sum g, grad_weight = sum g * xhat,
  /// and grad_input = weight * invstd * (g - (grad_bias + xhat * grad_weight) / n) if `batch_statistics`,
  /// else weight * invstd * g. grad_input may be not given; grad_weight and grad_bias [C] are given always.
  void (*batch_norm_grad)(const View& grad_input, const View& grad_weight, const View& grad_bias,
                          const View& grad_out, const View& input, const View& mean, const View& invstd,
                          const View& weight, bool batch_statistics) = nullptr;

  /// For each of mean.numel() rows of input, in row-major order: its mean, rstd = 1 / sqrt(biased variance +
  /// eps), from deviations from the mean so that a large one does no harm, and out = (input - mean) * rstd *
  /// weight + bias. weight and bias are a row each, or not given; mean and rstd as in batch_norm.
  void (*layer_norm)(const View& out, const View& mean, const View& rstd, const View& input,
                     const View& weight, const View& bias, double eps) = nullptr;
  /// With xhat = (input - mean) * rstd: grad_bias = sum of g over the rows, grad_weight = sum of g * xhat;
  /// and for each row, u = g * weight: grad_input = rstd * (u - mean of u - xhat * mean of u * xhat).
  void (*layer_norm_grad)(const View& grad_input, const View& grad_weight, const View& grad_bias,
                          const View& grad_out, const View& input, const View& mean, const View& rstd,
                          const View& weight) = nullptr;

  /// out = relu(batch_norm's result + residual), in one pass; residual may be not given.
  void (*batch_norm_relu)(const View& out, const View& input, const View& mean, const View& invstd,
                          const View& weight, const View& bias, const View& residual) = nullptr;
  /// As batch_norm_grad, of the gradients that pass the relu: grad_out where `out` is not 0. Those are also
  /// grad_residual, which may be not given. Without a residual `out` may be not given, and is computed again.
  /// grad_input may be the memory of grad_out.
  void (*batch_norm_relu_grad)(const View& grad_input, const View& grad_weight, const View& grad_bias,
                               const View& grad_residual, const View& grad_out, const View& out,
                               const View& input, const View& mean, const View& invstd, const View& weight,
                               const View& bias, bool batch_statistics) = nullptr;

  /// A 1x1 convolution over pixels, rows of matrices, with a = norm(x) [P, C]: out [P, O] = a weight[O, C]ᵀ +
  /// bias[O] (which may be not given), and mean and biased variance of the columns of `out`, rounded as they
  /// are, both [O], in dtype and manner as in batch_norm_statistics.
  void (*conv1x1_stats)(const View& out, const View& mean, const View& var, const View& x,
                        const NormRelu& norm, const View& weight, const View& bias) = nullptr;
  /// Its gradients, from those of out, mean and var, each of which may be not given. With
  ///   G = grad_out + grad_mean / P + grad_var * 2 (out - mean) / P,
  ///   da = G weight where a > 0 (all of it without a norm), xhat = (x - mean of the norm) * invstd:
  /// weight = Gᵀ a, bias = sum G, norm_bias = sum da, norm_weight = sum da * xhat, and
  /// x = da * invstd * weight of the norm, its statistics held fixed. x may be the memory of grad_out.
  void (*conv1x1_stats_grad)(const Conv1x1Grads& grads, const View& grad_out, const View& grad_mean,
                             const View& grad_var, const View& out, const View& mean, const View& x,
                             const NormRelu& norm, const View& weight) = nullptr;

  void (*adam)(std::span<const AdamTensors> parameters, const AdamArgs& args) = nullptr;
  void (*sgd)(std::span<const SgdTensors> parameters, const SgdArgs& args) = nullptr;

  /// g * inverse(scale) for the elements g of all `grads` (floating), computed in their compute type and, if
  /// `write`, put in their place. Sets found_inf to 1 if one of the results is not finite in its dtype, and
  /// never back to 0. scale and found_inf are 0-d float32; a scale that is not given stands for 1.
  void (*unscale)(std::span<const View> grads, const View& scale, const View& found_inf,
                  bool write) = nullptr;
  /// total = the p-norm of all elements x of `tensors` (floating, of any dtypes) as one vector: (sum of
  /// |x|^p)^(1 / p), or the largest |x| for p = infinity; p > 0. Rounded to the dtype of total (0-d,
  /// floating).
  void (*norm)(const View& total, std::span<const View> tensors, double p) = nullptr;
  /// x * factor in the place of the elements x of `tensors`, where factor = max_norm / (total + 1e-6) is less
  /// than 1 or NaN.
  void (*clip)(std::span<const View> tensors, const View& total, double max_norm) = nullptr;
  /// 0 in the place of all elements of `tensors` (floating).
  void (*zero)(std::span<const View> tensors) = nullptr;

  /// {scale, tracker} (0-d float32 and int32) = next({scale, tracker}, found_inf != 0, rule)
  void (*update_scale)(const View& scale, const View& tracker, const View& found_inf,
                       const ScaleRule& rule) = nullptr;
};

/// The table of a device, which becomes the one that the calling thread works on. Throws Error if the device
/// is not part of this build or not on this machine.
const Kernels& kernels(const Device& device);

/// Fillers of the tables, called once each.
Kernels make_cpu_kernels();
Kernels make_reference_kernels();

}  // namespace mezzo
