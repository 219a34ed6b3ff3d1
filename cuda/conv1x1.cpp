// 1x1 convolutions between batch normalisations, by what there is for their parts: the normalised input is
// made for the product, and made again for the gradients.
#include "cuda/conv1x1.h"

#include <optional>

#include "cuda/batch_norm.h"
#include "cuda/copy.h"
#include "cuda/gemm.h"
#include "cuda/kernel_families.h"
#include "cuda/linear.h"
#include "cuda/views.h"

namespace mezzo::cuda {
namespace {

/// a = norm(x), which is x itself without a norm.
class Input {
 public:
  Input(const View& x, const NormRelu& norm) : view_(x) {
    if (!norm.mean.given()) return;
    view_ = made_.emplace(x.dtype, x.shape).view();
    batch_norm_relu(view_, x, norm.mean, norm.invstd, norm.weight, norm.bias, {});
  }
  const View& view() const { return view_; }

 private:
  std::optional<ScratchTensor> made_;
  View view_;
};

void conv1x1_stats(const View& out, const View& mean, const View& var, const View& x, const NormRelu& norm,
                   const View& weight, const View& bias) {
  // The product is added to the bias, so that 16-bit results are rounded once.
  if (bias.given()) copy(out, in_every_row(bias, out.shape));
  gemm(out, Input(x, norm).view(), transposed(weight), bias.given());
  batch_norm_statistics(mean, var, out);
}

/// The gradients that begin with da = total weight. grads.x may be the memory of `total`, then a product
/// cannot go there.
void input_grad(const Conv1x1Grads& grads, const View& total, const View& x, const NormRelu& norm,
                const View& weight) {
  std::optional<ScratchTensor> apart;
  const View da = grads.x.data == total.data ? apart.emplace(x.dtype, x.shape).view() : grads.x;
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
  std::optional<ScratchTensor> made;
  const View total = plain ? grad_out : made.emplace(out.dtype, out.shape).view();
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
