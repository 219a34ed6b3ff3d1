#include "autograd/samples.h"

#include "tensor/random.h"

namespace mezzo {

Tensor uniform_sample(const Shape& shape, double low, double high) {
  return empty(shape, {.dtype = float64}).uniform_(low, high);
}

std::vector<Sample> samples_of(OpId id) {
  using Samples = std::vector<Sample> (*)();
  static constexpr Samples table[] = {
#define OP(name, ...) &samples<OpId::name>,
#include "autograd/ops.def"
#undef OP
  };
  return table[static_cast<size_t>(id)]();
}

}  // namespace mezzo
