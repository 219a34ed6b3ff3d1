// What every .cu file includes: launching a kernel, and shared memory. The one file that chooses between the
// device's compiler and the emulator (tests/emulator/), whose cuda_runtime.h defines both macros.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "cuda/context.h"

#ifndef CUDA_EMULATOR
/// An array in the block's shared memory: SHARED(float, tile, [32][33]).
#define SHARED(T, name, ...) __shared__ T name __VA_ARGS__
/// The block's dynamic shared memory, of the size that the launch gave, as an array of T.
#define DYN_SHARED(T, name)                                      \
  extern __shared__ __align__(16) unsigned char name##_bytes_[]; \
  T* name = reinterpret_cast<T*>(name##_bytes_)
#endif

namespace mezzo::cuda {

inline constexpr unsigned kWarp = 32;

/// How many threads a kernel has.
struct Grid {
  dim3 blocks, threads;
  size_t shared = 0;  ///< bytes of dynamic shared memory, at most 48 KiB
};

/// a / b, rounded up.
constexpr int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Blocks that fill the device, `each` on a multiprocessor.
inline int64_t blocks_of_device(int each) { return int64_t{card().multiprocessors} * each; }

/// One thread for each of `items`, in blocks of `threads`, but no more blocks than fill the device: kernels
/// step through what is left by the number of threads of the grid (`grid_stride`).
inline Grid grid_for(int64_t items, unsigned threads = 256) {
  const int64_t blocks = std::clamp<int64_t>(divide_up(items, threads), 1, blocks_of_device(16));
  return {dim3(static_cast<unsigned>(blocks)), dim3(threads)};
}

/// The first item of the calling thread, and the step to its next one.
__device__ inline int64_t first_item() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ inline int64_t grid_stride() { return int64_t{gridDim.x} * blockDim.x; }

/// Runs `kernel` on the calling thread's stream. Arguments are converted to the kernel's parameter types.
/// Throws Error if the launch is refused.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), const Grid& grid, Arguments&&... arguments) {
  const cudaStream_t stream = context().stream();
#ifdef CUDA_EMULATOR
  const cudaError_t status = emulator::launch(kernel, grid.blocks, grid.threads, grid.shared, stream,
                                              std::forward<Arguments>(arguments)...);
#else
  cudaLaunchConfig_t config{};
  config.gridDim = grid.blocks;
  config.blockDim = grid.threads;
  config.dynamicSmemBytes = grid.shared;
  config.stream = stream;
  const cudaError_t status =
      cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(std::forward<Arguments>(arguments))...);
#endif
  finish_launch(status, stream);
}

}  // namespace mezzo::cuda
