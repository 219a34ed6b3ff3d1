// 1x1 convolutions between batch normalisations, by what there is for their parts: the normalised input is
// made for the product, and made again for the gradients.
#include "cuda/conv1x1.h"

#include <optional>

#include "cuda/batch_norm.h"
#include "cuda/context.h"
#include "cuda/copy.h"
#include "cuda/gemm.h"
#include "cuda/kernel_families.h"
#include "cuda/linear.h"

namespace mezzo::cuda {
namespace {

/// A dense matrix in scratch memory, of the shape and dtype of another.
class MatrixLike {
 public:
  explicit MatrixLike(const View& like)
      : memory_(static_cast<size_t>(like.numel()) * size_of(like.dtype)),
        view_{memory_.data(), like.dtype, like.shape, contiguous_strides(like.shape)} {}
  const View& view() const { return view_; }

 private:
  Scratch memory_;
  View view_;
};

/// a = norm(x), which is x itself without a norm.
class Input {
 public:
  Input(const View& x, const NormRelu& norm) : view_(x) {
    if (!norm.mean.given()) return;
    view_ = made_.emplace(x).view();
    batch_norm_relu(view_, x, norm.mean, norm.invstd, norm.weight, norm.bias, {});
  }
  const View& view() const { return view_; }

 private:
  std::optional<MatrixLike> made_;
  View view_;
};

void conv1x1_stats(const View& out, const View& mean, const View& var, const View& x, const NormRelu& norm,
                   const View& weight, const View& bias) {
  if (bias.given()) {  // the product is added to it, so that 16-bit results are rounded once
    const View rows{bias.data, bias.dtype, out.shape, {0, bias.strides[0]}};
    copy(out, rows);
  }
  gemm(out, Input(x, norm).view(), transposed(weight), bias.given());
  batch_norm_statistics(mean, var, out);
}

/// The gradients that begin with da = total weight. grads.x may be the memory of `total`, then a product
/// cannot go there.
void input_grad(const Conv1x1Grads& grads, const View& total, const View& x, const NormRelu& norm,
                const View& weight) {
  std::optional<MatrixLike> apart;
  const View da = grads.x.data == total.data ? apart.emplace(x).view() : grads.x;
  gemm(da, total, weight);
  if (norm.mean.given())
    batch_norm_relu_grad(grads.x, grads.norm_weight, grads.norm_bias, {}, da, {}, x, norm.mean, norm.invstd,
                         norm.weight, norm.bias, false);
  else if (apart)
    copy(grads.x, da);
}

void conv1x1_stats_grad(const Conv1x1Grads& grads, const View& grad_out, const View& grad_mean,
                        const View& grad_var, const View& out, const View& mean, const View& x,
                        const NormRelu& norm, const View& weight) {
  const bool plain = grad_out.given() && !grad_mean.given() && !grad_var.given();
  std::optional<MatrixLike> made;
  const View total = plain ? grad_out : made.emplace(out).view();
  if (!plain)
    add_statistics_grad(total, grads.bias, grad_out, grad_mean, grad_var, out, mean);
  else if (grads.bias.given())
    sum_of_rows(grads.bias, {}, total, {});
  if (grads.weight.given()) gemm(grads.weight, transposed(total), Input(x, norm).view());
  if (grads.x.given()) input_grad(grads, total, x, norm, weight);
}

}  // namespace

void add_conv1x1(Kernels& table) {
  table.conv1x1_stats = conv1x1_stats;
  table.conv1x1_stats_grad = conv1x1_stats_grad;
}

}  // namespace mezzo::cuda
