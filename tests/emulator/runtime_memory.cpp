// Allocating and copying memory.
#include <cuda_runtime_api.h>

#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/emulator/capture.h"
#include "tests/emulator/errors.h"
#include "tests/emulator/memory.h"
#include "tests/emulator/runtime.h"
#include "tests/emulator/streams.h"

using namespace emulator;

namespace {

/// One end of a copy.
struct End {
  const void* address;
  int device;      ///< kNoDevice: host memory
  bool allocated;  ///< the bytes lie in one live allocation; of host memory nothing is known

  End(const void* address, std::size_t bytes)
      : address(address),
        device(device_of(address)),
        allocated(device == kNoDevice || holds(device, address, bytes)) {}

  bool on_device() const { return device != kNoDevice; }
  bool pageable() const { return !on_device() && !is_pinned(address); }
  std::string text() const {
    std::string words = on_device() ? "memory of device " + std::to_string(device) : "host memory";
    return allocated ? words : words + " outside an allocation";
  }
};

bool direction_fits(cudaMemcpyKind kind, const End& to, const End& from) {
  switch (kind) {
    case cudaMemcpyHostToHost:
      return !to.on_device() && !from.on_device();
    case cudaMemcpyHostToDevice:
      return to.on_device() && !from.on_device();
    case cudaMemcpyDeviceToHost:
      return !to.on_device() && from.on_device();
    case cudaMemcpyDeviceToDevice:
      return to.on_device() && from.on_device();
    default:
      return kind == cudaMemcpyDefault;
  }
}

/// Whether a copy with a direction stays on the stream's device, as one must that is not declared to go
/// between two.
bool device_fits(cudaMemcpyKind kind, const End& end, const Stream& stream) {
  return kind == cudaMemcpyDefault || !end.on_device() || end.device == stream.device;
}

/// A graph that copies may have outlived its memory.
void copy_now(void* to, const void* from, std::size_t bytes) {
  const End target(to, bytes), source(from, bytes);
  if (!target.allocated || !source.allocated) {
    return device_error(cudaErrorIllegalAddress, "copy from " + source.text() + " to " + target.text());
  }
  std::memmove(to, from, bytes);
}

cudaError_t copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t handle,
                 bool wait) {
  const std::lock_guard lock(runtime_mutex());
  const auto stream = find_stream(handle);
  if (!stream) return refuse(cudaErrorInvalidResourceHandle, "copy on a stream that does not exist");
  if (wait && forbidden_by_capture()) {
    return refuse(cudaErrorStreamCaptureUnsupported, "cudaMemcpy() while a stream is captured");
  }
  if (bytes == 0 || sticky_error() != cudaSuccess) return result();
  const End target(to, bytes), source(from, bytes);
  if (!direction_fits(kind, target, source) || !target.allocated || !source.allocated ||
      !device_fits(kind, target, *stream) || !device_fits(kind, source, *stream)) {
    return refuse(cudaErrorInvalidValue, "copy of " + std::to_string(bytes) + " bytes of kind " +
                                             std::to_string(kind) + " from " + source.text() + " to " +
                                             target.text() + " on a stream of device " +
                                             std::to_string(stream->device));
  }
  Work work;
  work.device = kEveryDevice;
  if (!wait && source.pageable() && target.on_device() && !stream->capture) {
    // Taken before the call returns, so that the caller may reuse the memory, as on a card.
    const auto* const begin = static_cast<const char*>(from);
    const auto staged = std::make_shared<const std::vector<char>>(begin, begin + bytes);
    work.run = [=] { copy_now(to, staged->data(), bytes); };
  } else {
    work.run = [=] { copy_now(to, from, bytes); };
  }
  const cudaError_t code = append(stream, std::move(work));
  // A copy into pageable memory returns when it is done.
  if (wait || (target.pageable() && source.on_device() && !stream->capture)) finish(stream);
  return code != cudaSuccess ? code : result();
}

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  const std::lock_guard lock(runtime_mutex());
  *memory = nullptr;
  if (forbidden_by_capture()) {
    return refuse(cudaErrorStreamCaptureUnsupported, "cudaMalloc() while a stream is captured");
  }
  if (bytes == 0) return result();
  *memory = allocate(current_device(), bytes);
  return result(*memory ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaFree(void* memory) {
  const std::lock_guard lock(runtime_mutex());
  if (!memory) return result();
  if (forbidden_by_capture()) {
    return refuse(cudaErrorStreamCaptureUnsupported, "cudaFree() while a stream is captured");
  }
  finish_device(kEveryDevice);  // it waits, as on a card
  return release(memory) ? result() : refuse(cudaErrorInvalidValue, "cudaFree() of what is not allocated");
}

/// In a capture stricter than a card, which would make the allocation a part of the graph.
cudaError_t cudaMallocAsync(void** memory, size_t bytes, cudaStream_t handle) {
  const std::lock_guard lock(runtime_mutex());
  *memory = nullptr;
  const auto stream = find_stream(handle);
  if (!stream) return refuse(cudaErrorInvalidResourceHandle, "there is no such stream");
  if (stream->capture) {
    stream->capture->valid = false;
    return refuse(cudaErrorStreamCaptureUnsupported, "the emulator has no cudaMallocAsync() in a capture");
  }
  if (bytes == 0) return result();
  *memory = allocate(stream->device, bytes);
  return result(*memory ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaFreeAsync(void* memory, cudaStream_t handle) {
  if (!memory) return result();
  return enqueue(handle, [memory] {
    if (!release(memory)) device_error(cudaErrorInvalidValue, "cudaFreeAsync() of what is not allocated");
  });
}

cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned) {
  if (forbidden_by_capture()) {
    return refuse(cudaErrorStreamCaptureUnsupported, "cudaHostAlloc() while a stream is captured");
  }
  *memory = allocate_pinned(bytes);
  return result(*memory ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaMallocHost(void** memory, size_t bytes) { return cudaHostAlloc(memory, bytes, 0); }

cudaError_t cudaFreeHost(void* memory) {
  const std::lock_guard lock(runtime_mutex());
  if (!memory) return result();
  if (forbidden_by_capture()) {
    return refuse(cudaErrorStreamCaptureUnsupported, "cudaFreeHost() while a stream is captured");
  }
  finish_device(kEveryDevice);
  return release_pinned(memory) ? result()
                                : refuse(cudaErrorInvalidValue, "cudaFreeHost() of what is not pinned");
}

cudaError_t cudaHostRegister(void* memory, size_t bytes, unsigned) {
  return result(pin(memory, bytes) ? cudaSuccess : cudaErrorHostMemoryAlreadyRegistered);
}

cudaError_t cudaHostUnregister(void* memory) {
  const std::lock_guard lock(runtime_mutex());
  finish_device(kEveryDevice);
  return result(unpin(memory) ? cudaSuccess : cudaErrorHostMemoryNotRegistered);
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return copy(to, from, bytes, kind, nullptr, true);
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return copy(to, from, bytes, kind, stream, false);
}

cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, size_t bytes,
                                cudaStream_t stream) {
  if (bytes != 0 && (device_of(to) != to_device || device_of(from) != from_device)) {
    return refuse(cudaErrorInvalidValue, "copy between devices whose memory it is not");
  }
  return copy(to, from, bytes, cudaMemcpyDefault, stream, false);
}

cudaError_t cudaMemcpyPeer(void* to, int to_device, const void* from, int from_device, size_t bytes) {
  const cudaError_t code = cudaMemcpyPeerAsync(to, to_device, from, from_device, bytes, nullptr);
  return code != cudaSuccess ? code : cudaStreamSynchronize(nullptr);
}

cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t handle) {
  const std::lock_guard lock(runtime_mutex());
  const auto stream = find_stream(handle);
  if (!stream) return refuse(cudaErrorInvalidResourceHandle, "there is no such stream");
  if (bytes == 0) return result();
  const int device = stream->device;
  if (!holds(device, memory, bytes)) {
    return refuse(cudaErrorInvalidValue, "memset of " + std::to_string(bytes) + " bytes in " +
                                             End(memory, bytes).text() + " on a stream of device " +
                                             std::to_string(device));
  }
  const auto fill = [=] {
    if (holds(device, memory, bytes))
      std::memset(memory, value, bytes);
    else
      device_error(cudaErrorIllegalAddress, "memset of freed device memory");
  };
  return append(stream, {fill, device, {}, 0});
}

cudaError_t cudaMemset(void* memory, int value, size_t bytes) {
  return cudaMemsetAsync(memory, value, bytes, nullptr);
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  *attributes = {};
  attributes->device = device_of(address);
  if (attributes->device != kNoDevice) {
    attributes->type = cudaMemoryTypeDevice;
    attributes->devicePointer = const_cast<void*>(address);
  } else if (is_pinned(address)) {
    attributes->type = cudaMemoryTypeHost;
    attributes->devicePointer = attributes->hostPointer = const_cast<void*>(address);
  } else {
    attributes->type = cudaMemoryTypeUnregistered;
  }
  return result();
}

}  // extern "C"
