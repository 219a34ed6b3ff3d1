// Which gradients have lost their scale since the scaler's last update. By memory, not by parameter: a
// parameter may belong to two optimizers, and a user may give one gradient to two parameters.
#pragma once

#include <unordered_map>
#include <vector>

#include "tensor/kernels.h"
#include "tensor/tensor.h"

namespace mezzo::amp {

class UnscaledGradients {
 public:
  struct Entry {
    Tensor gradient;   ///< keeps the memory, so that no other gradient can come to lie there
    Tensor found_inf;  ///< 0-d, of an optimizer that unscaled by itself: not 0, and it did not
  };
  /// What was entered for this memory, or null. Throws Error if it is memory that an entry shares in part.
  const Entry* find(const Tensor& gradient) const;
  /// Enters a gradient, or replaces its entry.
  void insert(const Entry& entry);
  void clear() { entries_.clear(); }

 private:
  std::unordered_map<const Storage*, std::vector<Entry>> entries_;
};

/// A gradient's memory, each element once also where it was expanded, without dimensions of size 1.
View distinct_elements(const Tensor& gradient);

}  // namespace mezzo::amp
