// The CUDA thread that runs: its indices, and what the checker compares.
#pragma once

#include <vector_types.h>

#include <cstdint>

namespace emulator {

constexpr unsigned kWarpSize = 32;

/// Addresses [low, high).
struct Range {
  std::uintptr_t low = 0, high = 0;

  constexpr bool contains(std::uintptr_t address) const { return address >= low && address < high; }
  constexpr bool contains(std::uintptr_t address, std::uintptr_t bytes) const {
    return address >= low && address + bytes <= high;
  }
};

/// What the emulator and the checker know about the running CUDA thread. One per OS thread, rewritten at each
/// switch, like the variables below.
struct ThreadState {
  unsigned thread = 0;                    ///< number within the block
  unsigned block = 0;                     ///< number within the grid
  unsigned launch = 0;                    ///< number of the launch; 0: the emulator's own code runs
  unsigned run = 0;                       ///< counts blocks that were run in the program
  unsigned barriers = 0, warp_syncs = 0;  ///< that the thread has passed in this block
  Range stack, arguments;                 ///< memory that is the thread's own
};
extern constinit thread_local ThreadState current;

}  // namespace emulator

extern constinit thread_local uint3 threadIdx, blockIdx;
extern constinit thread_local dim3 blockDim, gridDim;
constexpr int warpSize = emulator::kWarpSize;
