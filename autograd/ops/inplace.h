// What changes in place share.
#pragma once

#include <string_view>

#include "tensor/tensor.h"

namespace mezzo::ops {

/// Throws Error where a change of x in place would corrupt something. `recorded`: it gets a node.
void check_writable(std::string_view op, const Tensor& x, bool recorded);
/// b, or a copy of it if the change of x would change it too.
Tensor apart_from(const Tensor& x, const Tensor& b);
/// A bound to clamp x by, low or high; undefined if it is a number that integers of x's dtype cannot pass,
/// and Error if none of them could keep to it.
Tensor bound_in_range(std::string_view op, const Tensor& x, const Tensor& bound, bool low);

}  // namespace mezzo::ops
