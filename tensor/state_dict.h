// An ordered list of named tensors: what modules and optimizers save.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tensor/tensor.h"

namespace mezzo {

/// Name to tensor, in the order of insertion.
class StateDict {
 public:
  using Entry = std::pair<std::string, Tensor>;

  void insert(const std::string& name, const Tensor& value);
  bool contains(const std::string& name) const { return find(name) != nullptr; }
  /// The tensor under a name; throws Error if there is none.
  const Tensor& at(const std::string& name) const;
  size_t size() const { return entries_.size(); }
  std::vector<Entry>::const_iterator begin() const { return entries_.begin(); }
  std::vector<Entry>::const_iterator end() const { return entries_.end(); }

 private:
  const Tensor* find(const std::string& name) const;
  std::vector<Entry> entries_;
};

}  // namespace mezzo
