// Where something may change the inputs of an op before it runs: all that autograd knows of amp.
#pragma once

#include <memory>
#include <optional>

#include "autograd/node.h"
#include "autograd/op_info.h"

namespace mezzo {

/// Casts the inputs of ops while its guard is open: amp::Autocast makes one.
class CastHook {
 public:
  virtual ~CastHook() = default;
  /// The inputs as the op is to have them. `dtype` is the op's option of that name, to be filled in where it
  /// is empty; null for an op that has none.
  virtual Tensors cast_inputs(OpId op, Inputs inputs, std::optional<DType>* dtype) const = 0;
  /// The inputs of a user's op that asks for this dtype.
  virtual Tensors cast_inputs(Inputs inputs, DType dtype) const = 0;
};

/// The hook of this thread, null outside any guard and in a new thread.
const std::shared_ptr<const CastHook>& cast_hook();

/// Sets the hook (null: none) for a scope and restores the one before at its end, also when an exception
/// leaves it.
class [[nodiscard]] CastHookGuard {
 public:
  explicit CastHookGuard(std::shared_ptr<const CastHook> hook);
  ~CastHookGuard();
  CastHookGuard(const CastHookGuard&) = delete;
  CastHookGuard& operator=(const CastHookGuard&) = delete;

 private:
  std::shared_ptr<const CastHook> previous_;
};

}  // namespace mezzo
