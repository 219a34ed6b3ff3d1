// The convolutions of the tests, the examples and the benchmarks.
#pragma once

#include <string>
#include <vector>

#include "tensor/kernels.h"

namespace mezzo {

struct ConvCase {
  std::string what;
  Shape input, weight;
  ConvGeometry geometry;

  /// OH and OW: floor((H + padding - dilation (K - 1) - 1) / stride) + 1.
  Shape out() const {
    Shape result{input[0], weight[0], 0, 0};
    for (int d = 2; d < 4; ++d) {
      const auto i = static_cast<size_t>(d - 2);
      const int64_t span = geometry.dilation[i] * (weight[d] - 1) + 1;
      const int64_t padded = input[d] + 2 * geometry.padding[i] + geometry.padding_after[i];
      result[d] = (padded - span) / geometry.stride[i] + 1;
    }
    return result;
  }
};

/// Small ones, of every kind: autograd/ops/conv2d.cpp, tests/golden/layers.py, tests/nn/, tests/tensor/ and
/// tests/threads/.
inline std::vector<ConvCase> small_conv_cases() {
  return {
      {"1x1", {2, 3, 4, 5}, {6, 3, 1, 1}, {}},
      {"1x1, many channels", {2, 17, 5, 4}, {33, 17, 1, 1}, {}},
      {"1x1 of one channel", {1, 2, 5, 5}, {16, 2, 1, 1}, {}},
      {"1x1 to one channel", {1, 16, 5, 5}, {1, 16, 1, 1}, {}},
      {"1x1 of one pixel", {3, 4, 1, 1}, {5, 4, 1, 1}, {}},
      {"1x1 strided", {2, 3, 5, 5}, {4, 3, 1, 1}, {.stride = {2, 2}}},
      {"3x3", {2, 3, 6, 5}, {4, 3, 3, 3}, {}},
      {"3x3 padded", {1, 2, 5, 4}, {3, 2, 3, 3}, {.padding = {1, 1}}},
      {"3x3, many channels", {2, 16, 9, 9}, {48, 16, 3, 3}, {.padding = {1, 1}}},
      {"padded unevenly", {1, 2, 4, 5}, {3, 2, 3, 3}, {.padding = {2, 0}}},
      {"5x5", {2, 1, 8, 8}, {4, 1, 5, 5}, {.padding = {2, 2}}},
      {"strided", {2, 3, 7, 6}, {4, 3, 3, 3}, {.stride = {2, 2}, .padding = {1, 1}}},
      {"strided unevenly", {1, 2, 7, 7}, {3, 2, 3, 3}, {.stride = {3, 2}, .padding = {0, 1}}},
      {"strided, oblong", {2, 2, 6, 5}, {2, 2, 3, 2}, {.stride = {2, 1}, .padding = {0, 1}}},
      {"dilated", {2, 2, 8, 7}, {3, 2, 3, 3}, {.padding = {2, 2}, .dilation = {2, 2}}},
      {"dilated unevenly", {1, 2, 6, 6}, {2, 2, 2, 3}, {.padding = {1, 0}, .dilation = {3, 2}}},
      {"dilated, strided",
       {1, 2, 8, 7},
       {3, 2, 3, 2},
       {.stride = {1, 2}, .padding = {1, 1}, .dilation = {3, 2}}},
      {"groups", {2, 4, 5, 5}, {6, 2, 3, 3}, {.padding = {1, 1}, .groups = 2}},
      {"groups, strided", {2, 6, 8, 8}, {8, 3, 3, 3}, {.stride = {2, 2}, .padding = {1, 1}, .groups = 2}},
      {"groups of two", {2, 8, 7, 6}, {8, 2, 3, 3}, {.groups = 4}},
      {"depthwise", {2, 4, 5, 6}, {4, 1, 3, 3}, {.padding = {1, 1}, .groups = 4}},
      {"depthwise, many channels", {2, 32, 6, 6}, {32, 1, 3, 3}, {.padding = {1, 1}, .groups = 32}},
      {"depthwise, two of each",
       {1, 3, 6, 6},
       {6, 1, 3, 3},
       {.stride = {2, 2}, .padding = {1, 1}, .groups = 3}},
      {"depthwise, dilated",
       {2, 3, 6, 6},
       {6, 1, 3, 3},
       {.padding = {2, 2}, .dilation = {2, 2}, .groups = 3}},
      {"wide kernel", {2, 2, 4, 8}, {3, 2, 1, 5}, {.padding = {0, 2}}},
      {"tall kernel", {2, 2, 7, 4}, {3, 2, 4, 1}, {.padding = {1, 0}}},
      {"kernel of the image's size", {2, 3, 4, 4}, {5, 3, 4, 4}, {}},
      {"everything",
       {2, 4, 9, 8},
       {6, 2, 3, 2},
       {.stride = {2, 1}, .padding = {2, 1}, .dilation = {2, 3}, .groups = 2}},
      {"more padding at the end",
       {1, 2, 5, 4},
       {3, 2, 2, 4},
       {.stride = {1, 2}, .padding = {0, 1}, .padding_after = {1, 1}}},
      {"same, even kernel", {2, 2, 5, 6}, {3, 2, 2, 4}, {.padding = {0, 1}, .padding_after = {1, 1}}},
      {"same, dilated, groups",
       {1, 4, 6, 5},
       {2, 2, 4, 2},
       {.padding = {4, 0}, .dilation = {3, 1}, .groups = 2, .padding_after = {1, 1}}},
      {"same, kernel beyond the image",
       {1, 1, 2, 3},
       {2, 1, 6, 4},
       {.padding = {2, 3}, .dilation = {1, 2}, .padding_after = {1, 0}}},
      {"same, 3x2", {2, 2, 6, 6}, {8, 2, 3, 2}, {.padding = {1, 0}, .padding_after = {0, 1}}},
  };
}

/// Those of training: the checkerboard, digits, and the nets of bench/.
inline std::vector<ConvCase> large_conv_cases() {
  const auto square = [](std::string what, int64_t images, int64_t in, int64_t side, int64_t out,
                         int64_t kernel, int64_t stride = 1, int64_t padding = 0) {
    return ConvCase{std::move(what),
                    {images, in, side, side},
                    {out, in, kernel, kernel},
                    {.stride = {stride, stride}, .padding = {padding, padding}}};
  };
  return {
      square("checkerboard, first", 1, 2, 512, 256, 1),
      square("checkerboard, inner", 1, 256, 512, 256, 1),
      square("checkerboard, last", 1, 256, 512, 1, 1),
      square("checkerboard of 128, inner", 1, 256, 128, 256, 1),
      square("digits, first", 64, 1, 8, 32, 3, 1, 1),
      square("digits, second", 64, 32, 8, 64, 3),
      square("digits, third", 64, 64, 6, 64, 3),
      square("LeNet, first", 64, 1, 28, 32, 3, 1, 1),
      square("LeNet, second", 64, 32, 14, 64, 3, 1, 1),
      square("ResNet-18, stem", 128, 3, 32, 64, 3, 1, 1),
      square("ResNet-18, 64", 128, 64, 32, 64, 3, 1, 1),
      square("ResNet-18, 64 to 128", 128, 64, 32, 128, 3, 2, 1),
      square("ResNet-18, 128", 128, 128, 16, 128, 3, 1, 1),
      square("ResNet-18, shortcut to 128", 128, 64, 32, 128, 1, 2),
      square("ResNet-18, 128 to 256", 128, 128, 16, 256, 3, 2, 1),
      square("ResNet-18, shortcut to 256", 128, 128, 16, 256, 1, 2),
      square("ResNet-18, 256", 128, 256, 8, 256, 3, 1, 1),
      square("ResNet-18, 256 to 512", 128, 256, 8, 512, 3, 2, 1),
      square("ResNet-18, shortcut to 512", 128, 256, 8, 512, 1, 2),
      square("ResNet-18, 512", 128, 512, 4, 512, 3, 1, 1),
      square("ImageNet, stem", 32, 3, 224, 64, 7, 2, 3),
      square("bench, 1x1", 1, 256, 256, 256, 1),
      square("bench, 3x3", 1, 64, 64, 64, 3, 1, 1),
  };
}

}  // namespace mezzo
