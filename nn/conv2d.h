// Conv2d: a convolution over images.
#pragma once

#include "nn/module.h"
#include "tensor/kernels.h"

namespace mezzo::nn {

/// Height and width; one number stands for both.
struct Size2 {
  int64_t height, width;
  Size2(int64_t both) : height(both), width(both) {}
  Size2(int64_t height, int64_t width) : height(height), width(width) {}
};

struct Conv2dOptions {
  Size2 stride = 1, padding = 0, dilation = 1;
  int64_t groups = 1;
  bool bias = true;
};

/// y = conv2d(x, W) + b: x [N, in, H, W], W [out, in / groups, KH, KW], b [out], y [N, out, OH, OW] with
/// OH = floor((H + 2 padding - dilation (KH - 1) - 1) / stride) + 1. W and b start uniform in +-1 /
/// sqrt(fan_in), fan_in = in / groups * KH * KW.
class Conv2d : public Module {
 public:
  Conv2d(int64_t in_channels, int64_t out_channels, Size2 kernel_size, const Conv2dOptions& options = {});
  Tensor forward(const Tensor& x) override;
  std::string extra() const override;

  Tensor weight, bias;

 private:
  ConvGeometry geometry_;
};

}  // namespace mezzo::nn
