#include "tensor/state_dict.h"

#include "tensor/error.h"

namespace mezzo {

const Tensor* StateDict::find(const std::string& name) const {
  for (const Entry& entry : entries_) {
    if (entry.first == name) return &entry.second;
  }
  return nullptr;
}

void StateDict::insert(const std::string& name, const Tensor& value) {
  if (contains(name)) fail("state_dict", text("the name \"", name, "\" is there already"));
  entries_.emplace_back(name, value);
}

const Tensor& StateDict::at(const std::string& name) const {
  if (const Tensor* found = find(name)) return *found;
  fail("state_dict", text("there is no \"", name, '"'));
}

}  // namespace mezzo
