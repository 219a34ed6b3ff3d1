#include "autograd/cast_hook.h"

#include <utility>

namespace mezzo {

namespace {
thread_local std::shared_ptr<const CastHook> hook_of_this_thread;
}

const std::shared_ptr<const CastHook>& cast_hook() { return hook_of_this_thread; }

CastHookGuard::CastHookGuard(std::shared_ptr<const CastHook> hook)
    : previous_(std::exchange(hook_of_this_thread, std::move(hook))) {}

CastHookGuard::~CastHookGuard() { hook_of_this_thread = std::move(previous_); }

}  // namespace mezzo
