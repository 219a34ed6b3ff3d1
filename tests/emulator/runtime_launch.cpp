// Launching kernels, and what the runtime tells about them.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <utility>

#include "tests/emulator/diagnosis.h"
#include "tests/emulator/errors.h"
#include "tests/emulator/launch.h"
#include "tests/emulator/memory.h"
#include "tests/emulator/runtime.h"
#include "tests/emulator/settings.h"
#include "tests/emulator/shared_memory.h"
#include "tests/emulator/streams.h"

namespace emulator {

namespace {

constexpr unsigned kMaxThreadsZ = 64;
constexpr unsigned kMaxGridX = 2147483647, kMaxGridYZ = 65535;

/// Dynamic shared memory that kernels may use beyond the default.
std::map<const void*, std::size_t>& dynamic_shared_limits() {
  static std::map<const void*, std::size_t> limits;
  return limits;
}

std::size_t dynamic_shared_limit(const void* function) {
  const auto found = dynamic_shared_limits().find(function);
  return found != dynamic_shared_limits().end() ? found->second : kSharedBytes;
}

std::string text(const dim3& size) {
  return std::to_string(size.x) + " x " + std::to_string(size.y) + " x " + std::to_string(size.z);
}

/// What a pointer argument points to that no kernel on the device may touch, or null.
const char* problem_of(const void* pointer, int device) {
  if (!pointer || is_pinned(pointer)) return nullptr;
  const char* const bytes = static_cast<const char*>(pointer);
  if (holds(device, bytes, 1) || holds(device, bytes - 1, 1))
    return nullptr;  // the end of an array is fine too
  const int owner = device_of(pointer);
  if (owner == kNoDevice) return " is a host pointer";
  return owner == device ? " points to freed device memory" : " points to memory of another device";
}

/// Looks at pointers when a kernel is launched, and again when it runs: a graph may have outlived its memory.
bool check_arguments(const Launch& launch) {
  for (const PointerArgument& argument : launch.kernel.pointers) {
    if (const char* const problem = problem_of(argument.pointer, launch.device)) {
      device_error(cudaErrorIllegalAddress, "argument " + std::to_string(argument.number) + " of kernel " +
                                                function_name(launch.kernel.function) + problem);
      return false;
    }
  }
  return true;
}

}  // namespace

cudaError_t launch_kernel(Kernel kernel, dim3 grid, dim3 block, std::size_t shared_bytes,
                          cudaStream_t stream) {
  const std::lock_guard lock(runtime_mutex());
  if (sticky_error() != cudaSuccess) return result();
  const std::uint64_t threads = std::uint64_t{block.x} * block.y * block.z;
  if (!threads || threads > kMaxThreads || block.x > kMaxThreads || block.y > kMaxThreads ||
      block.z > kMaxThreadsZ) {
    return refuse(cudaErrorInvalidConfiguration, "a block of " + text(block) + " threads");
  }
  if (!grid.x || !grid.y || !grid.z || grid.x > kMaxGridX || grid.y > kMaxGridYZ || grid.z > kMaxGridYZ) {
    return refuse(cudaErrorInvalidConfiguration, "a grid of " + text(grid) + " blocks");
  }
  if (shared_bytes > dynamic_shared_limit(kernel.function)) {
    return refuse(cudaErrorInvalidValue, std::to_string(shared_bytes) +
                                             " bytes of dynamic shared memory, for which kernel " +
                                             function_name(kernel.function) + " has not opted in");
  }
  Launch launch;
  launch.kernel = std::move(kernel);
  launch.grid = grid;
  launch.block = block;
  launch.shared_bytes = shared_bytes;
  launch.device = current_device();
  if (!check_arguments(launch)) return result();
  return enqueue(stream, [launch = std::move(launch)]() mutable {
    static std::atomic<unsigned> launches{0};
    if (!check_arguments(launch)) return;
    launch.number = ++launches;
    run_grid(launch);
  });
}

}  // namespace emulator

using namespace emulator;

extern "C" {

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return result();  // a hint
  if (value < 0 || static_cast<std::size_t>(value) > kSharedBytesOptIn) {
    return refuse(cudaErrorInvalidValue, std::to_string(value) + " bytes of shared memory");
  }
  const std::lock_guard lock(runtime_mutex());
  dynamic_shared_limits()[function] = static_cast<std::size_t>(value);
  return result();
}

/// What a compiler would have to say, registers for example, is made up.
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
  const std::lock_guard lock(runtime_mutex());
  *attributes = {};
  attributes->maxThreadsPerBlock = static_cast<int>(kMaxThreads);
  attributes->numRegs = 32;
  attributes->ptxVersion = attributes->binaryVersion = settings().architecture;
  attributes->maxDynamicSharedSizeBytes = static_cast<int>(dynamic_shared_limit(function));
  return result();
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int block_size,
                                                          size_t shared_bytes) {
  constexpr int kThreads = 2048, kBlocks = 32;
  constexpr std::size_t kShared = std::size_t{228} << 10;
  if (block_size <= 0) return refuse(cudaErrorInvalidValue, "a block of no threads");
  const auto by_memory = static_cast<int>(kShared / (shared_bytes + kSharedBytesReserved));
  *blocks = std::min({kBlocks, kThreads / block_size, by_memory});
  return result();
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* function,
                                                                   int block_size, size_t shared_bytes,
                                                                   unsigned) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, block_size, shared_bytes);
}

}  // extern "C"
