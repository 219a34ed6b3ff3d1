// Hooks: functions that users hang on tensors and modules.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace mezzo {

/// Takes a hook off again. A copy is the same handle; it may outlive what the hook hung on.
class HookHandle {
 public:
  HookHandle() = default;
  explicit HookHandle(std::function<void()> remove) : remove_(std::move(remove)) {}
  /// The hook runs no more. A second time does nothing.
  void remove() const {
    if (remove_) remove_();
  }

 private:
  std::function<void()> remove_;
};

/// Hooks of one place, in the order in which they came. A handle: copies share the list.
template <class F>
class Hooks {
 public:
  bool empty() const { return !list_ || list_->empty(); }
  /// The hooks of now: one that runs may add and remove some.
  std::vector<std::shared_ptr<const F>> list() const { return list_ ? *list_ : List(); }

  HookHandle add(F f) {
    if (!list_) list_ = std::make_shared<List>();
    list_->push_back(std::make_shared<const F>(std::move(f)));
    return HookHandle([hooks = std::weak_ptr(list_), hook = std::weak_ptr(list_->back())] {
      if (const auto still = hooks.lock()) std::erase(*still, hook.lock());
    });
  }

 private:
  using List = std::vector<std::shared_ptr<const F>>;
  std::shared_ptr<List> list_;
};

}  // namespace mezzo
