// How Sequential and Residual run their layers.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "nn/module.h"

namespace mezzo::nn {

using Layers = std::span<const std::pair<std::string, std::shared_ptr<Module>>>;

/// Layers that run together, or one that runs alone.
struct Stage {
  enum Kind : uint8_t { alone, chain, batch_norm_relu, folded, linear_relu, gelu_linear };
  Kind kind;
  size_t first, count;
  std::string_view why_alone;  ///< of a BatchNorm
};

/// How the layers run in their present mode, or each alone if fusing is off.
std::vector<Stage> stages_of(Layers layers);
/// The last of them applied to ... the first applied to x.
Tensor run_layers(Layers layers, const Tensor& x);

}  // namespace mezzo::nn
