// Linear maps: in tiles of rows (conv1x1.cpp), or by the library's products of whole matrices.
#include "tensor/cpu/linear.h"

#include "tensor/cpu/kernel_families.h"
#include "tensor/cpu/matmul.h"
#include "tensor/cpu/pointwise_loop.h"
#include "tensor/cpu/rounded_products.h"
#include "tensor/cpu/scratch.h"

namespace mezzo::cpu {
namespace {

const PointwiseKernels& relu_kernels() { return kernels({}).pointwise[pointwise::index<pointwise::Relu>]; }

/// In bfloat16 the library reads operands as they are, where tiles would be converted row by row.
bool multiplies_whole(const View& weight) {
  if constexpr (onednn::available)
    return RoundedProducts::serve(weight.dtype, weight.shape[1], weight.shape[0]);
  else
    return false;
}

void linear_by_matmul(const View& out, const View& x, const View& weight, const View& bias, bool relu) {
  matmul(out, x, transposed(weight), bias);
  if (relu) relu_kernels().value(compute_type(out.dtype), out, {{out}});
}

void linear_grad_by_matmul(const LinearGrads& grads, const View& grad_out, const View& out, const View& x,
                           const View& weight) {
  const Scratch memory(out.given() ? static_cast<size_t>(out.numel()) * size_of(out.dtype) : 0);
  View passed = grad_out;  // by the relu
  if (out.given()) {
    passed = {memory.as<void>(), out.dtype, out.shape, contiguous_strides(out.shape)};
    relu_kernels().slope[0](compute_type(out.dtype), passed, {{grad_out, out}});
  }
  if (grads.x.given()) matmul(grads.x, passed, weight, {});
  if (grads.weight.given()) matmul(grads.weight, transposed(passed), x, {});
  if (grads.bias.given()) {
    View row = grads.bias;
    row.shape.insert(0, 1);
    row.strides.insert(0, 0);
    kernels({}).reduce[static_cast<size_t>(Reduction::sum)](row, passed);
  }
}

void linear(const View& out, const View& x, const View& weight, const View& bias, bool relu) {
  // With so few rows, packing the weight would take longer than they do.
  constexpr int64_t kFewRows = 16;
  if (!is_floating(out.dtype) || x.shape[0] < kFewRows || weight.numel() == 0 || multiplies_whole(weight))
    return linear_by_matmul(out, x, weight, bias, relu);
  linear_in_tiles(out, x, weight, bias, relu);
}

void linear_grad(const LinearGrads& grads, const View& grad_out, const View& out, const View& x,
                 const View& weight) {
  if (multiplies_whole(weight)) return linear_grad_by_matmul(grads, grad_out, out, x, weight);
  linear_grad_in_tiles(grads, grad_out, out, x, weight);
}

}  // namespace

void add_linear(Kernels& table) {
  table.linear = linear;
  table.linear_grad = linear_grad;
}

}  // namespace mezzo::cpu
