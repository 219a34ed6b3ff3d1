// Checking gradients against differences: for tests, and for users' own ops.
#pragma once

#include <functional>
#include <string>

#include "autograd/node.h"

namespace mezzo {

/// Step and tolerance of the central differences (f(x + step) - f(x - step)) / (2 step); an entry may be off
/// by absolute + relative * |difference|. The defaults fit float64.
struct GradcheckOptions {
  double step = 1e-6, absolute = 1e-6, relative = 1e-5;
};

using TensorFunction = std::function<Tensors(Inputs)>;

/// Compares the gradients of f at `inputs` (float64; others are held fixed) with central differences. Returns
/// "" if they agree, else a text that says which entry differs and by how much.
std::string gradcheck(const TensorFunction& f, Inputs inputs, const GradcheckOptions& options = {});

/// The same for the gradients of the gradients.
std::string gradgradcheck(const TensorFunction& f, Inputs inputs, const GradcheckOptions& options = {});

}  // namespace mezzo
