// What the parts of the runtime share.
#pragma once

#include <mutex>

namespace emulator {

/// Held by every call while it looks at or changes the runtime's state, and while queued work runs.
std::recursive_mutex& runtime_mutex();

/// The device that the calling thread has chosen.
int current_device();

}  // namespace emulator
