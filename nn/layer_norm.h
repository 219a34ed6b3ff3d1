// LayerNorm: normalisation by the statistics of each row.
#pragma once

#include <string>

#include "nn/module.h"

namespace mezzo::nn {

struct LayerNormOptions {
  double eps = 1e-5;               ///< added to the variance
  bool elementwise_affine = true;  ///< learn weight and bias
  bool bias = true;                ///< of these two also the bias
};

/// y = (x - mean) / sqrt(var + eps) * weight + bias with mean and (biased) var over the last dimensions of x,
/// which are normalized_shape, as are weight and bias; these start as ones and zeros. Ba, Kiros, Hinton,
/// "Layer Normalization" (2016).
class LayerNorm : public Module {
 public:
  explicit LayerNorm(const Shape& normalized_shape, const LayerNormOptions& options = {});
  /// Over the last dimension alone.
  explicit LayerNorm(int64_t size, const LayerNormOptions& options = {}) : LayerNorm(Shape{size}, options) {}
  Tensor forward(const Tensor& x) override;
  std::string extra() const override;

  Tensor weight, bias;  ///< undefined if they are not learnt

 private:
  Shape normalized_shape_;
  LayerNormOptions options_;
};

}  // namespace mezzo::nn
