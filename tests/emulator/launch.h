// A kernel that is to run, and running it.
#pragma once

#include <emulator/launch.h>

#include <cstddef>

namespace emulator {

constexpr unsigned kMaxThreads = 1024;  ///< of a block; a power of two

struct Launch {
  Kernel kernel;
  dim3 grid, block;
  std::size_t shared_bytes = 0;
  int device = 0;
  unsigned number = 0;  ///< counts launches, from 1; 0 while it waits in a stream
};

/// Runs every block; returns when all are done.
void run_grid(const Launch& launch);

/// Whether the checker is linked into this program.
extern bool checker_linked;

}  // namespace emulator
