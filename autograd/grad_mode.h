// Whether ops are recorded, per thread.
#pragma once

namespace mezzo {

/// True unless a NoGradGuard is open in this thread.
bool grad_enabled();

/// Sets recording for a scope and restores it at the end, also when an exception leaves the scope.
class [[nodiscard]] GradModeGuard {
 public:
  explicit GradModeGuard(bool enabled);
  ~GradModeGuard();
  GradModeGuard(const GradModeGuard&) = delete;
  GradModeGuard& operator=(const GradModeGuard&) = delete;

 private:
  bool previous_;
};

/// Ops in the scope are not recorded: no history, no memory held for backward.
struct [[nodiscard]] NoGradGuard : GradModeGuard {
  NoGradGuard() : GradModeGuard(false) {}
};

/// Recording inside a NoGradGuard.
struct [[nodiscard]] EnableGradGuard : GradModeGuard {
  EnableGradGuard() : GradModeGuard(true) {}
};

}  // namespace mezzo
