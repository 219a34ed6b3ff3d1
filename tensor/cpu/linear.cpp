// Linear maps: in tiles of rows (conv1x1.cpp), or by the library's products of whole matrices.
#include "tensor/cpu/linear.h"

#include "tensor/cpu/kernel_families.h"
#include "tensor/cpu/matmul.h"
#include "tensor/cpu/pointwise_loop.h"
#include "tensor/cpu/rounded_products.h"
#include "tensor/cpu/scratch.h"

namespace mezzo::cpu {
namespace {

template <class S>
const PointwiseKernels& pointwise_kernels() {
  return kernels({}).pointwise[pointwise::index<S>];
}

/// In bfloat16 the library reads operands as they are, where tiles would be converted row by row.
bool multiplies_whole(const View& weight) {
  if constexpr (onednn::available)
    return RoundedProducts::serve(weight.dtype, weight.shape[1], weight.shape[0]);
  else
    return false;
}

/// A matrix of the shape and dtype of another.
class MatrixLike {
 public:
  explicit MatrixLike(const View& like)
      : memory_(static_cast<size_t>(like.numel()) * size_of(like.dtype)),
        view_{memory_.as<void>(), like.dtype, like.shape, contiguous_strides(like.shape)} {}
  const View& view() const { return view_; }

 private:
  Scratch memory_;
  View view_;
};

/// f(what is multiplied): x or gelu(x).
template <class F>
void with_input(const View& x, LinearWith with, F&& f) {
  if (with != LinearWith::gelu_before) return f(x);
  const MatrixLike gelu(x);
  pointwise_kernels<pointwise::Gelu>().value(compute_type(x.dtype), gelu.view(), {{x}});
  f(gelu.view());
}

void linear_by_matmul(const View& out, const View& x, const View& weight, const View& bias, LinearWith with) {
  with_input(x, with, [&](const View& input) { matmul(out, input, transposed(weight), bias); });
  if (with == LinearWith::relu_after)
    pointwise_kernels<pointwise::Relu>().value(compute_type(out.dtype), out, {{out}});
}

/// grad_out: what the relu has passed, if there was one.
void linear_grad_of_product(const LinearGrads& grads, const View& grad_out, const View& x, const View& weight,
                            LinearWith with) {
  if (grads.x.given()) {
    matmul(grads.x, grad_out, weight, {});
    if (with == LinearWith::gelu_before)
      pointwise_kernels<pointwise::Gelu>().slope[0](compute_type(x.dtype), grads.x, {{grads.x, x}});
  }
  if (grads.weight.given())
    with_input(x, with, [&](const View& input) { matmul(grads.weight, transposed(grad_out), input, {}); });
  if (grads.bias.given()) {
    View row = grads.bias;
    row.shape.insert(0, 1);
    row.strides.insert(0, 0);
    kernels({}).reduce[static_cast<size_t>(Reduction::sum)](row, grad_out);
  }
}

void linear_grad_by_matmul(const LinearGrads& grads, const View& grad_out, const View& out, const View& x,
                           const View& weight, LinearWith with) {
  if (with != LinearWith::relu_after) return linear_grad_of_product(grads, grad_out, x, weight, with);
  const MatrixLike passed(out);
  pointwise_kernels<pointwise::Relu>().slope[0](compute_type(out.dtype), passed.view(), {{grad_out, out}});
  linear_grad_of_product(grads, passed.view(), x, weight, with);
}

void linear(const View& out, const View& x, const View& weight, const View& bias, LinearWith with) {
  // With so few rows, packing the weight would take longer than they do.
  constexpr int64_t kFewRows = 16;
  if (!is_floating(out.dtype) || x.shape[0] < kFewRows || weight.numel() == 0 || multiplies_whole(weight))
    return linear_by_matmul(out, x, weight, bias, with);
  linear_in_tiles(out, x, weight, bias, with);
}

void linear_grad(const LinearGrads& grads, const View& grad_out, const View& out, const View& x,
                 const View& weight, LinearWith with) {
  if (multiplies_whole(weight)) return linear_grad_by_matmul(grads, grad_out, out, x, weight, with);
  linear_grad_in_tiles(grads, grad_out, out, x, weight, with);
}

}  // namespace

void add_linear(Kernels& table) {
  table.linear = linear;
  table.linear_grad = linear_grad;
}

}  // namespace mezzo::cpu
