// Sequential: modules one after the other.
#pragma once

#include <concepts>

#include "nn/module.h"
#include "nn/stages.h"

namespace mezzo::nn {

/// y = last(... second(first(x))); children are named 0, 1, ...
class Sequential : public Module {
 public:
  Sequential() = default;
  template <std::derived_from<Module>... M>
  requires(sizeof...(M) > 1 || !(std::same_as<M, Sequential> || ...)) explicit Sequential(M... modules) {
    (push_back(std::move(modules)), ...);
  }

  /// Appends a module, under its number or a name.
  template <std::derived_from<Module> M>
  void push_back(M module) {
    push_back(std::to_string(children().size()), std::move(module));
  }
  template <std::derived_from<Module> M>
  void push_back(const std::string& name, M module) {
    add(name, std::move(module));
  }

  /// Some runs of layers go together: nn/fusion.h.
  Tensor forward(const Tensor& x) override { return run_layers(children(), x); }
};

}  // namespace mezzo::nn
