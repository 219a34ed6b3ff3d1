#include "nn/layer_norm.h"

#include "autograd/ops.h"

namespace mezzo::nn {

LayerNorm::LayerNorm(const Shape& normalized_shape, const LayerNormOptions& options)
    : normalized_shape_(normalized_shape), options_(options) {
  if (normalized_shape.empty()) fail("LayerNorm", "normalized_shape needs at least 1 dimension");
  for (const int64_t size : normalized_shape) {
    if (size < 1)
      fail("LayerNorm",
           text("normalized_shape has sizes of at least 1, not ", mezzo::to_string(normalized_shape)));
  }
  if (options.eps < 0) fail("LayerNorm", text("eps = ", options.eps, " is negative"));
  const bool affine = options.elementwise_affine;
  weight = add_parameter("weight", affine ? ones(normalized_shape) : Tensor());
  bias = add_parameter("bias", affine && options.bias ? zeros(normalized_shape) : Tensor());
}

Tensor LayerNorm::forward(const Tensor& x) {
  return layer_norm(x, normalized_shape_, weight, bias, options_.eps);
}

std::string LayerNorm::extra() const {
  std::string sizes;
  for (const int64_t size : normalized_shape_) sizes += text(sizes.empty() ? "" : ", ", size);
  const auto flag = [](const Tensor& learnt) { return learnt.defined() ? "True" : "False"; };
  return text('(', sizes, normalized_shape_.dim() == 1 ? "," : "", "), eps=", options_.eps,
              ", elementwise_affine=", flag(weight), ", bias=", flag(bias));
}

}  // namespace mezzo::nn
