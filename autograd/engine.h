// Backward: gradients through what was recorded.
#pragma once

#include <functional>
#include <vector>

#include "autograd/node.h"

namespace mezzo {

struct GradOptions {
  bool retain_graph = false;  ///< keep what ops saved, for another backward; create_graph implies it
  bool create_graph = false;  ///< record backward too, so that the gradients can be differentiated
  bool allow_unused = false;  ///< an input that takes no part gets an undefined gradient instead of an Error
};

/// Gradients of sum_i <outputs[i], gradients[i]> in each of `inputs` (leaves or not), after the inputs'
/// hooks, as tensors that may share memory; no leaf's grad() changes. `gradients` may be empty, or undefined
/// where an output is a scalar: 1. Throws Error if an input does not take part, an output has no history, or
/// the graph was freed.
Tensors grad(Inputs outputs, Inputs inputs, Inputs gradients = {}, const GradOptions& options = {});

/// Gradients of a composition of ops at `inputs`, for gradients of its outputs: how an op whose forward is
/// one fused kernel gets a second derivative, from the plain ops that it stands for. Differentiable if grad
/// mode is on.
Tensors vector_jacobian(const std::function<Tensors(Inputs)>& composition, Inputs inputs, Inputs gradients);

}  // namespace mezzo
