// What the CUDA_EMULATOR_* environment variables choose.
#pragma once

#include <cstddef>
#include <cstdint>

namespace emulator {

/// Read once; a test may change what stands here between launches.
struct Settings {
  enum class Order { forward, reverse, random };  ///< of threads in a block and of blocks in a grid
  enum class Streams { eager, lazy, random };     ///< when queued work runs

  Order order = Order::forward;      ///< CUDA_EMULATOR_ORDER
  Streams streams = Streams::eager;  ///< CUDA_EMULATOR_STREAMS
  std::uint64_t seed = 1;            ///< CUDA_EMULATOR_SEED, of what is random
  unsigned workers = 2;              ///< CUDA_EMULATOR_WORKERS: OS threads that run blocks
  bool protect = true;               ///< CUDA_EMULATOR_PROTECT: host code cannot touch device memory
  bool fatal = true;                 ///< CUDA_EMULATOR_FATAL: an error on the device ends the process
  std::size_t memory_mib = 4096;     ///< CUDA_EMULATOR_MEMORY_MIB, of each device
  int devices = 1;                   ///< CUDA_EMULATOR_DEVICES
  int architecture = 90;             ///< CUDA_EMULATOR_ARCH: compute capability times ten
};

Settings& settings();

inline constexpr int kAmpere = 80;  ///< the first architecture with bfloat16 and TF32

/// xorshift64: small, and the same numbers everywhere.
struct RandomNumbers {
  std::uint64_t state;

  std::uint32_t next() {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return static_cast<std::uint32_t>(state >> 32);
  }
  std::size_t below(std::size_t limit) { return next() % limit; }
};

}  // namespace emulator
