// Barriers of a block and memory fences.
#pragma once

#include <atomic>

#include "emulator/location.h"

namespace emulator {

/// What a barrier makes of the threads' values.
enum class Reduction { count, all, any };

/// All threads of the block meet here.
int barrier(int value, Reduction reduction, Location at);

/// Ends the kernel with an error.
[[noreturn]] void trap(const char* what, Location at);

}  // namespace emulator

inline void __syncthreads(emulator::Location at = emulator::Location::here()) {
  emulator::barrier(0, emulator::Reduction::count, at);
}
inline int __syncthreads_count(int value, emulator::Location at = emulator::Location::here()) {
  return emulator::barrier(value, emulator::Reduction::count, at);
}
inline int __syncthreads_and(int value, emulator::Location at = emulator::Location::here()) {
  return emulator::barrier(value, emulator::Reduction::all, at);
}
inline int __syncthreads_or(int value, emulator::Location at = emulator::Location::here()) {
  return emulator::barrier(value, emulator::Reduction::any, at);
}

// Threads of one block take turns on one OS thread, so only the wider fences have something to do.
inline void __threadfence_block() {}
inline void __threadfence() { std::atomic_thread_fence(std::memory_order_seq_cst); }
inline void __threadfence_system() { std::atomic_thread_fence(std::memory_order_seq_cst); }

inline void __nanosleep(unsigned) {}
inline void __trap(emulator::Location at = emulator::Location::here()) { emulator::trap("__trap()", at); }
