// The ways in which a tensor's elements can lie in memory, and the holes that the op table may have.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "autograd/samples.h"

namespace mezzo {

/// A kind of memory layout. `arrange` returns a tensor that lies so, undefined if x cannot (or if that is no
/// other layout than x's own). An expanded tensor repeats a part of x, so its values differ.
struct OperandLayout {
  std::string_view name;
  Tensor (*arrange)(const Tensor& x);
};
const std::vector<OperandLayout>& layouts();

/// Elements, `kind` "empty" or "0-d", that some samples have instead of a layout.
bool has_kind(std::string_view kind, const Tensors& inputs, const Tensors& outputs);

/// A combination that a row of the table does not offer. `kind` is a layout, "empty", "0-d" or a dtype.
struct Hole {
  std::string_view op, kind, reason;
};
/// Every hole. One that is not here fails the test, and so does one here that does not exist.
const std::vector<Hole>& holes();
bool is_hole(std::string_view op, std::string_view kind);

/// Allowed difference from the float64 result, in epsilons of the dtype and relative to the largest entry.
double allowed_epsilons(std::string_view op, DType dtype);
double epsilon_of(DType dtype);

/// Seeds the samples' generator with test_seed(). Tests capture it, so that a failure can be repeated.
uint64_t seed_samples();

/// The samples of a row with inputs on the device under test.
std::vector<Sample> samples_on_device(OpId id);

}  // namespace mezzo
