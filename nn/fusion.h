// Fusing: runs of layers that one op computes with fewer passes over memory. Nothing else changes: names,
// state dicts, modes, errors and autocast are as without.
//
//   convolution 1x1, BatchNorm, ReLU, convolution 1x1, ...   conv1x1_stats for each convolution
//   BatchNorm, ReLU                                          batch_norm_relu
//   convolution, BatchNorm in evaluation, no ReLU            one convolution with scaled weights
//   Linear, ReLU                                             linear_relu
//   GELU, Linear                                             gelu_linear
//
// Sequential and Residual find these patterns among their children; conv_bn_relu and gelu_linear say one in a
// forward that is written by hand. A layer with a hook stays alone, and so does one of another type, derived
// ones included.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "nn/batch_norm.h"
#include "nn/conv2d.h"
#include "nn/linear.h"

namespace mezzo::nn {

/// Turns fusing off or on again, for the whole process.
void fusion(bool enabled);
/// Whether it is on, as it is at first.
bool fusion();

/// relu(bn(conv(x)) + residual), where residual may be undefined.
Tensor conv_bn_relu(const Tensor& x, Conv2d& conv, BatchNorm& bn, const Tensor& residual = {});
/// linear(gelu(x))
Tensor gelu_linear(const Tensor& x, Linear& linear);

/// What fusion makes of the children of each Sequential and Residual of a network in its present mode. The
/// shapes of an input may still have the layers run one by one, which then say what is wrong with it.
struct FusionPlan {
  struct Entry {
    std::string layers;  ///< paths of the first and the last
    std::string what;    ///< the op, or why BatchNorm is not fused
  };
  std::vector<Entry> entries;
};
FusionPlan fusion_plan(Module& net);
/// A line for each entry.
std::ostream& operator<<(std::ostream& out, const FusionPlan& plan);

}  // namespace mezzo::nn
