#include "tensor/state_dict.h"

#include "tensor/error.h"

namespace mezzo {

namespace {
[[noreturn]] void refuse_twice(const std::string& name) {
  fail("state_dict", text("the name \"", name, "\" is there already"));
}
}  // namespace

void StateDict::insert(const std::string& name, const Tensor& value) {
  if (contains(name)) refuse_twice(name);
  entries_.emplace_back(name, value);
  positions_.emplace(name, entries_.size() - 1);
}

void StateDict::insert(const std::string& prefix, StateDict other) {
  for (const auto& [name, value] : other) {
    if (contains(prefix + name)) refuse_twice(prefix + name);
  }
  for (const auto& [name, value] : other) insert(prefix + name, value);
}

StateDict StateDict::without_prefix(std::string_view prefix) const {
  StateDict found;
  for (const auto& [name, value] : entries_) {
    if (name.starts_with(prefix)) found.insert(name.substr(prefix.size()), value);
  }
  return found;
}

const Tensor& StateDict::at(const std::string& name) const {
  const auto found = positions_.find(name);
  if (found == positions_.end()) fail("state_dict", text("there is no \"", name, '"'));
  return entries_[found->second].second;
}

}  // namespace mezzo
