// What tests of layers share.
#pragma once

#include "nn/fusion.h"
#include "nn/module.h"
#include "tests/golden.h"
#include "tests/support.h"

namespace mezzo {

template <class Layer>
Layer on_device(Layer layer, DType dtype = float32) {
  layer.to(dtype).to(test_device());
  return layer;
}

/// A state dict whose values do not follow the module.
inline StateDict snapshot(const nn::Module& module) {
  StateDict copy;
  for (const auto& [name, value] : module.state_dict()) copy.insert(name, value.clone());
  return copy;
}

inline void check_unchanged(const nn::Module& module, const StateDict& before) {
  for (const auto& entry : module.state_dict()) {
    CAPTURE(entry.first);
    CHECK(close(entry.second, before.at(entry.first), 0));
  }
}

inline Tensor uniform(const Shape& shape, DType dtype = float32) {
  return rand(shape, {.dtype = dtype, .device = test_device()});
}

/// Fusing as said, for a scope.
class Fusing {
 public:
  explicit Fusing(bool on) { nn::fusion(on); }
  ~Fusing() { nn::fusion(true); }
};

}  // namespace mezzo
