#include "autograd/grad_mode.h"

namespace mezzo {

namespace {
thread_local bool enabled_in_this_thread = true;
}

bool grad_enabled() { return enabled_in_this_thread; }

GradModeGuard::GradModeGuard(bool enabled) : previous_(enabled_in_this_thread) {
  enabled_in_this_thread = enabled;
}

GradModeGuard::~GradModeGuard() { enabled_in_this_thread = previous_; }

}  // namespace mezzo
