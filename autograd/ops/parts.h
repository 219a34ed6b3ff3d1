// Pieces of one tensor, as split leaves them.
#pragma once

#include "autograd/node.h"

namespace mezzo::ops {

/// What cat would make of the pieces, without a copy, if they lie side by side along `dim` of one memory;
/// else an undefined tensor. A view without history.
Tensor joined(Inputs pieces, int dim);

}  // namespace mezzo::ops
