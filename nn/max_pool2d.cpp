#include "nn/max_pool2d.h"

namespace mezzo::nn {

MaxPool2d::MaxPool2d(Size2 kernel_size, const MaxPool2dOptions& options)
    : kernel_size_(kernel_size), options_(options) {}

Tensor MaxPool2d::forward(const Tensor& x) { return max_pool2d(x, kernel_size_, options_); }

std::string MaxPool2d::extra() const {
  const auto size = [](Size2 s) {
    return s.height == s.width ? text(s.height) : text('(', s.height, ", ", s.width, ')');
  };
  return text("kernel_size=", size(kernel_size_), ", stride=", size(options_.stride.value_or(kernel_size_)),
              ", padding=", size(options_.padding), ", dilation=", size(options_.dilation),
              ", ceil_mode=", options_.ceil_mode ? "True" : "False");
}

}  // namespace mezzo::nn
