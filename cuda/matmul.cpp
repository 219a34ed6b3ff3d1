// Products of matrices and linear maps: cuBLAS for the products, kernels of linear.cu around them.
#include <optional>

#include "cuda/copy.h"
#include "cuda/gemm.h"
#include "cuda/kernel_families.h"
#include "cuda/linear.h"
#include "cuda/matmul_integer.h"
#include "cuda/views.h"

namespace mezzo::cuda {
namespace {

/// out = a b + bias. The product is added to the bias, so that 16-bit results are rounded once.
void matmul(const View& out, const View& a, const View& b, const View& bias) {
  if (!is_floating(out.dtype)) return matmul_integer(out, a, b, bias);
  if (bias.given()) copy(out, in_every_row(bias, out.shape));
  gemm(out, a, b, bias.given());
}

/// What is multiplied: x, or gelu(x).
class Input {
 public:
  Input(const View& x, LinearWith with) : view_(x) {
    if (with != LinearWith::gelu_before || x.numel() == 0) return;
    gelu(gelu_.emplace(x.dtype, x.shape).view(), x);
    view_ = gelu_->view();
  }
  const View& view() const { return view_; }

 private:
  std::optional<ScratchTensor> gelu_;
  View view_;
};

void linear(const View& out, const View& x, const View& weight, const View& bias, LinearWith with) {
  const Input input(x, with);
  if (with != LinearWith::relu_after) return matmul(out, input.view(), transposed(weight), bias);
  gemm(out, input.view(), transposed(weight));
  add_bias_relu(out, bias);
}

/// The gradients of a product from g, what has passed the relu if there was one.
void linear_grad_of_product(const LinearGrads& grads, const View& g, const View& x, const View& weight,
                            LinearWith with) {
  if (grads.x.given()) {
    gemm(grads.x, g, weight);
    if (with == LinearWith::gelu_before) multiply_by_gelu_slope(grads.x, x);
  }
  if (grads.weight.given()) gemm(grads.weight, transposed(g), Input(x, with).view());
}

void linear_grad(const LinearGrads& grads, const View& grad_out, const View& out, const View& x,
                 const View& weight, LinearWith with) {
  if (with != LinearWith::relu_after) {
    if (grads.bias.given()) sum_of_rows(grads.bias, {}, grad_out, {});
    return linear_grad_of_product(grads, grad_out, x, weight, with);
  }
  const ScratchTensor passed(grad_out.dtype, grad_out.shape);
  sum_of_rows(grads.bias, passed.view(), grad_out, out);
  linear_grad_of_product(grads, passed.view(), x, weight, with);
}

}  // namespace

void add_matmul(Kernels& table) {
  table.matmul = matmul;
  table.linear = linear;
  table.linear_grad = linear_grad;
}

}  // namespace mezzo::cuda
