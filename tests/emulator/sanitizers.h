// The one place that knows under which sanitizer the emulator is compiled.
#pragma once

#include <cstddef>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) && !defined(__SANITIZE_ADDRESS__)
#define __SANITIZE_ADDRESS__ 1  // gcc's name for it
#endif
#endif

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace emulator::sanitizers {

#ifdef __SANITIZE_ADDRESS__

constexpr bool kAddress = true;

/// From here on an access to this memory is an error.
inline void poison(const void* memory, std::size_t bytes) { __asan_poison_memory_region(memory, bytes); }
inline void unpoison(const void* memory, std::size_t bytes) { __asan_unpoison_memory_region(memory, bytes); }

/// Around a change of stacks: AddressSanitizer keeps what it knows about the one that is left in `saved`.
inline void leave_stack(void** saved, const void* next_bottom, std::size_t next_bytes) {
  __sanitizer_start_switch_fiber(saved, next_bottom, next_bytes);
}
/// On the new stack: `previous_*` get the bounds of the stack that was left.
inline void enter_stack(void* saved, const void** previous_bottom, std::size_t* previous_bytes) {
  __sanitizer_finish_switch_fiber(saved, previous_bottom, previous_bytes);
}

/// Calls `note` when a sanitizer has reported an error and is about to end the process.
inline void at_death(void (*note)()) { __sanitizer_set_death_callback(note); }

#else

constexpr bool kAddress = false;

inline void poison(const void*, std::size_t) {}
inline void unpoison(const void*, std::size_t) {}
inline void leave_stack(void**, const void*, std::size_t) {}
inline void enter_stack(void*, const void**, std::size_t*) {}
inline void at_death(void (*)()) {}

#endif

}  // namespace emulator::sanitizers
