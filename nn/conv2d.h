// Conv2d: a convolution over images.
#pragma once

#include <concepts>
#include <optional>
#include <string>

#include "nn/module.h"
#include "tensor/kernels.h"

namespace mezzo::nn {

/// Rows and columns of zeros on each side of an image. Or a word: "same" keeps the image's size (stride 1
/// only; of an odd number the last goes below or to the right), "valid" pads nothing.
struct Padding : Size2 {
  using Size2::Size2;
  template <std::convertible_to<std::string> Word>
  Padding(const Word& word) : Size2(0), word(word) {}

  std::optional<std::string> word;
};

struct Conv2dOptions {
  Size2 stride = 1;
  Padding padding = 0;
  Size2 dilation = 1;
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

  const ConvGeometry& geometry() const { return geometry_; }
  /// Whether each pixel of the output comes from one of the input, in all its channels.
  bool is_1x1() const;

  Tensor weight, bias;

 private:
  ConvGeometry geometry_;
  std::optional<std::string> padding_;  ///< its word
};

}  // namespace mezzo::nn
