// An ordered list of named tensors: what modules and optimizers save.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tensor/tensor.h"

namespace mezzo {

/// Name to tensor, in the order of insertion.
class StateDict {
 public:
  using Entry = std::pair<std::string, Tensor>;

  /// Throws Error for a name that is there already, and then changes nothing.
  void insert(const std::string& name, const Tensor& value);
  /// Adds all of another's tensors, their names behind `prefix`: "model." makes "model.weight" of "weight".
  void insert(const std::string& prefix, StateDict other);
  /// The tensors whose names begin with `prefix`, by the rest of their names: the inverse of such an insert.
  StateDict without_prefix(std::string_view prefix) const;
  bool contains(const std::string& name) const { return positions_.contains(name); }
  /// The tensor under a name; throws Error if there is none.
  const Tensor& at(const std::string& name) const;
  size_t size() const { return entries_.size(); }
  std::vector<Entry>::const_iterator begin() const { return entries_.begin(); }
  std::vector<Entry>::const_iterator end() const { return entries_.end(); }

 private:
  std::vector<Entry> entries_;
  std::unordered_map<std::string, size_t> positions_;  ///< in entries_
};

}  // namespace mezzo
