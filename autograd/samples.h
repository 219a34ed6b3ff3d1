// Samples: what the tests of the op table run. An op's own file gives them, so a new op arrives with its
// tests.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "autograd/op_info.h"
#include "autograd/ops.h"

namespace mezzo {

/// A call of an op: float64 inputs (integers where the op takes positions) and the call as a function of
/// them, which tests repeat in other dtypes and layouts and on other devices.
struct Sample {
  std::string what;
  Tensors inputs;
  std::function<Tensors(Inputs)> run;
};

/// The samples of a row. An op without them does not link.
template <OpId id>
std::vector<Sample> samples();

#define OP(name, ...) \
  template <>         \
  std::vector<Sample> samples<OpId::name>();
#include "autograd/ops.def"
#undef OP

/// The samples of a row that is known at run time.
std::vector<Sample> samples_of(OpId id);

/// Float64 values in [low, high) from the default generator.
Tensor uniform_sample(const Shape& shape, double low = -1, double high = 1);

}  // namespace mezzo
