#include "nn/conv2d.h"

#include "autograd/ops.h"
#include "nn/init.h"

namespace mezzo::nn {

Conv2d::Conv2d(int64_t in_channels, int64_t out_channels, Size2 kernel_size, const Conv2dOptions& options)
    : geometry_{{options.stride.height, options.stride.width},
                {options.padding.height, options.padding.width},
                {options.dilation.height, options.dilation.width},
                options.groups},
      padding_(options.padding.word) {
  const int64_t groups = options.groups;
  if (in_channels < 1 || out_channels < 1) {
    fail("Conv2d", text("needs at least 1 channel, not ", in_channels, " in and ", out_channels, " out"));
  }
  if (groups < 1 || in_channels % groups != 0 || out_channels % groups != 0) {
    fail("Conv2d", text("groups = ", groups, " does not divide ", in_channels, " input and ", out_channels,
                        " output channels"));
  }
  const auto least = [](Size2 size, int64_t bound) { return size.height >= bound && size.width >= bound; };
  if (!least(kernel_size, 1) || !least(options.stride, 1) || !least(options.dilation, 1) ||
      !least(options.padding, 0)) {
    fail("Conv2d", "kernel size, stride and dilation must be at least 1, padding at least 0");
  }
  if (padding_ && padding_ != "same" && padding_ != "valid") {
    fail("Conv2d", text("padding \"", *padding_, "\" is neither \"same\" nor \"valid\""));
  }
  if (padding_ == "same") {
    if (geometry_.stride != ConvGeometry().stride) fail("Conv2d", "padding \"same\" needs a stride of 1");
    const std::array<int64_t, 2> kernel{kernel_size.height, kernel_size.width};
    for (size_t axis = 0; axis < 2; ++axis) {
      const int64_t total = geometry_.dilation[axis] * (kernel[axis] - 1);
      geometry_.padding[axis] = total / 2;
      geometry_.padding_after[axis] = total % 2;
    }
  }
  weight = add_parameter("weight",
                         empty({out_channels, in_channels / groups, kernel_size.height, kernel_size.width}));
  bias = add_parameter("bias", options.bias ? empty({out_channels}) : Tensor());
  init::default_(weight, bias);
}

Tensor Conv2d::forward(const Tensor& x) { return conv2d(x, weight, bias, geometry_); }

bool Conv2d::is_1x1() const {
  const ConvGeometry plain;
  return weight.size(2) == 1 && weight.size(3) == 1 && geometry_.stride == plain.stride &&
         geometry_.padding == plain.padding && geometry_.padding_after == plain.padding_after &&
         geometry_.groups == 1;
}

std::string Conv2d::extra() const {
  const auto pair = [](const auto& both) { return text('(', both[0], ", ", both[1], ')'); };
  const ConvGeometry plain;
  std::string out = text(weight.size(1) * geometry_.groups, ", ", weight.size(0), ", kernel_size=(",
                         weight.size(2), ", ", weight.size(3), "), stride=", pair(geometry_.stride));
  if (padding_)
    out += ", padding=" + *padding_;
  else if (geometry_.padding != plain.padding)
    out += ", padding=" + pair(geometry_.padding);
  if (geometry_.dilation != plain.dilation) out += ", dilation=" + pair(geometry_.dilation);
  if (geometry_.groups != 1) out += text(", groups=", geometry_.groups);
  return bias.defined() ? out : out + ", bias=False";
}

}  // namespace mezzo::nn
