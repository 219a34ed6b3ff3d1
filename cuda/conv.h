// A convolution's operands, what can be computed of them, and plans of cuDNN for that.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "cuda/dnn_graph.h"
#include "tensor/kernels.h"

namespace mezzo::cuda {

/// Which operand is computed from the others: out, input's gradient in place of input, or weight's in place
/// of weight.
enum class ConvPass : uint8_t { forward, input_grad, weight_grad };

/// All of one floating dtype. Only a forward pass has a bias, and may have none.
struct Convolution {
  ConvPass pass;
  View out, input, weight, bias;
  ConvGeometry geometry;

  const View& result() const {
    if (pass == ConvPass::forward) return out;
    return pass == ConvPass::input_grad ? input : weight;
  }
};

/// By the definition: one thread an element of the result, which adds up its terms in order. Any strides.
void conv_direct(const Convolution& conv);

/// What a plan depends on: operands in channels-last or row-major memory.
struct ConvProblem {
  ConvPass pass;
  DType dtype;
  bool channels_last, with_bias, tf32;
  Shape out, input, weight;
  ConvGeometry geometry;

  Shape strides(const Shape& shape) const {
    return channels_last ? channels_last_strides(shape) : contiguous_strides(shape);
  }
};

/// The plan for a convolution on a device that is described so, none if cuDNN has no engine for it.
std::optional<DnnPlan> find_conv_plan(const ConvProblem& problem, const Descriptor& device);

/// By which a plan knows its tensors; `sum` is the result before the bias.
namespace conv_id {
inline constexpr int64_t out = 'y', input = 'x', weight = 'w', bias = 'b', sum = 's';
}

}  // namespace mezzo::cuda
