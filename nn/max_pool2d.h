// MaxPool2d: the largest element in each window of an image.
#pragma once

#include <string>

#include "autograd/ops.h"
#include "nn/module.h"

namespace mezzo::nn {

/// y[n, c, i, j] = the largest x[n, c, i stride + u dilation - padding, ...] over the cells (u, v) of the
/// kernel: x [N, C, H, W], y [N, C, OH, OW] with OH = floor((H + 2 padding - dilation (KH - 1) - 1) / stride)
/// + 1. With ceil_mode rounded up, but no window begins beyond the input.
class MaxPool2d : public Module {
 public:
  explicit MaxPool2d(Size2 kernel_size, const MaxPool2dOptions& options = {});
  Tensor forward(const Tensor& x) override;
  std::string extra() const override;

 private:
  Size2 kernel_size_;
  MaxPool2dOptions options_;
};

}  // namespace mezzo::nn
