// Devices and what they can do.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstring>
#include <mutex>

#include "tests/emulator/capture.h"
#include "tests/emulator/errors.h"
#include "tests/emulator/launch.h"
#include "tests/emulator/memory.h"
#include "tests/emulator/runtime.h"
#include "tests/emulator/settings.h"
#include "tests/emulator/shared_memory.h"
#include "tests/emulator/streams.h"

using namespace emulator;

namespace {

constinit thread_local int chosen = 0;

bool exists(int device) { return device >= 0 && device < settings().devices; }

}  // namespace

namespace emulator {

std::recursive_mutex& runtime_mutex() {
  static auto* const mutex = new std::recursive_mutex;  // static destructors may still call
  return *mutex;
}

int current_device() { return chosen; }

}  // namespace emulator

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = settings().devices;
  return result(*count > 0 ? cudaSuccess : cudaErrorNoDevice);
}

cudaError_t cudaGetDevice(int* device) {
  *device = chosen;
  return result(settings().devices > 0 ? cudaSuccess : cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int device) {
  if (!exists(device)) return result(cudaErrorInvalidDevice);
  chosen = device;
  return result();
}

cudaError_t cudaInitDevice(int device, unsigned, unsigned) {
  return result(exists(device) ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return result();
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return result();
}

/// The sizes of an H100, with few multiprocessors so that loops over the grid take more than one turn.
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (!exists(device)) return result(cudaErrorInvalidDevice);
  std::memset(static_cast<void*>(properties), 0, sizeof *properties);
  std::snprintf(properties->name, sizeof properties->name, "CUDA emulator");
  properties->totalGlobalMem = memory_use(device).total;
  properties->sharedMemPerBlock = kSharedBytes;
  properties->sharedMemPerBlockOptin = kSharedBytesOptIn;
  properties->sharedMemPerMultiprocessor = std::size_t{228} << 10;
  properties->reservedSharedMemPerBlock = kSharedBytesReserved;
  properties->regsPerBlock = properties->regsPerMultiprocessor = 65536;
  properties->warpSize = kWarpSize;
  properties->maxThreadsPerBlock = kMaxThreads;
  properties->maxThreadsDim[0] = properties->maxThreadsDim[1] = kMaxThreads;
  properties->maxThreadsDim[2] = 64;
  properties->maxGridSize[0] = 2147483647;
  properties->maxGridSize[1] = properties->maxGridSize[2] = 65535;
  properties->major = settings().architecture / 10;
  properties->minor = settings().architecture % 10;
  properties->multiProcessorCount = 4;
  properties->maxThreadsPerMultiProcessor = 2048;
  properties->maxBlocksPerMultiProcessor = 32;
  properties->l2CacheSize = 50 << 20;
  properties->unifiedAddressing = 1;
  properties->memoryPoolsSupported = 1;
  properties->concurrentKernels = 1;
  properties->asyncEngineCount = 2;
  return result();
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp properties;
  if (const cudaError_t code = cudaGetDeviceProperties(&properties, device)) return code;
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
      *value = properties.maxThreadsPerBlock;
      break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *value = properties.maxThreadsPerMultiProcessor;
      break;
    case cudaDevAttrMaxBlocksPerMultiprocessor:
      *value = properties.maxBlocksPerMultiProcessor;
      break;
    case cudaDevAttrMultiProcessorCount:
      *value = properties.multiProcessorCount;
      break;
    case cudaDevAttrWarpSize:
      *value = properties.warpSize;
      break;
    case cudaDevAttrMaxGridDimX:
      *value = properties.maxGridSize[0];
      break;
    case cudaDevAttrMaxGridDimY:
      *value = properties.maxGridSize[1];
      break;
    case cudaDevAttrMaxGridDimZ:
      *value = properties.maxGridSize[2];
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = properties.major;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = properties.minor;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = static_cast<int>(properties.sharedMemPerBlock);
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(properties.sharedMemPerBlockOptin);
      break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = static_cast<int>(properties.sharedMemPerMultiprocessor);
      break;
    case cudaDevAttrL2CacheSize:
      *value = properties.l2CacheSize;
      break;
    case cudaDevAttrMemoryPoolsSupported:
      *value = properties.memoryPoolsSupported;
      break;
    case cudaDevAttrUnifiedAddressing:
      *value = properties.unifiedAddressing;
      break;
    case cudaDevAttrConcurrentKernels:
      *value = properties.concurrentKernels;
      break;
    case cudaDevAttrMaxRegistersPerBlock:
      *value = properties.regsPerBlock;
      break;
    default:
      return refuse(cudaErrorInvalidValue, "device attribute " + std::to_string(attribute));
  }
  return result();
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = *greatest = 0;
  return result();
}

/// Copies between devices work without; a kernel never reaches the other device's memory.
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 0;
  return result();
}

cudaError_t cudaDeviceSynchronize() {
  const std::lock_guard lock(runtime_mutex());
  if (capture_on(current_device())) {
    invalidate_captures_on(current_device());
    return refuse(cudaErrorStreamCaptureUnsupported, "cudaDeviceSynchronize() while a stream is captured");
  }
  finish_device(current_device());
  return result();
}

cudaError_t cudaMemGetInfo(size_t* available, size_t* total) {
  const MemoryUse use = memory_use(current_device());
  *available = use.total - use.used;
  *total = use.total;
  return result();
}

}  // extern "C"
