// Sequential: modules one after the other.
#pragma once

#include <concepts>

#include "nn/module.h"

namespace mezzo::nn {

/// y = last(... second(first(x))); children are named 0, 1, ...
class Sequential : public Module {
 public:
  Sequential() = default;
  template <std::derived_from<Module>... M>
  requires(sizeof...(M) > 1 || !(std::same_as<M, Sequential> || ...)) explicit Sequential(M... modules) {
    (push_back(std::move(modules)), ...);
  }

  /// Appends a module.
  template <std::derived_from<Module> M>
  void push_back(M module) {
    add(std::to_string(children().size()), std::move(module));
  }

  Tensor forward(const Tensor& x) override {
    Tensor y = x;
    for (const auto& [name, child] : children()) y = (*child)(y);
    return y;
  }
};

}  // namespace mezzo::nn
