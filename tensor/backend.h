// A device with kernels and memory of its own, which a library beside this one brings: cuda/.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "tensor/kernels.h"
#include "tensor/storage.h"

namespace mezzo {

/// What a backend can do. `index` is the device's, and has been checked.
struct Backend {
  Kernels kernels;
  /// Devices on this machine; with none, `absence` is why.
  int count = 0;
  std::string absence;

  /// Makes a device the one that the calling thread's kernels run on.
  void (*select)(int index) = nullptr;
  /// Throws Error, with the bytes asked for, free and cached, if there is no memory.
  void* (*allocate)(size_t bytes, int index) = nullptr;
  void (*release)(void* data, int index) = nullptr;
  /// Whether the device's kernels can work at `data`.
  bool (*is_memory)(const void* data, int index) = nullptr;
  /// Bytes from one device's memory to another's, of which one may be the CPU's: ordered after the work on
  /// either that the calling thread has asked for, and done, where the CPU's memory is written, when it
  /// returns.
  void (*copy)(void* to, const Device& to_device, const void* from, const Device& from_device,
               size_t bytes) = nullptr;
  /// Ten times the major part of a device's compute capability, plus the minor one: 80 and above have
  /// bfloat16.
  int (*capability)(int index) = nullptr;
  /// Records the work that `step` asks for, instead of doing it, and does it: cuda::Graph.
  std::shared_ptr<void> (*record)(int index, const std::function<void()>& step) = nullptr;
  void (*replay)(int index, void* recording) = nullptr;
  /// The number, no two alike, of the capture of the calling thread's work on the device: recorded in a
  /// graph, not run. 0 if it is not captured.
  uint64_t (*capture)(int index) = nullptr;
  /// While capturing: `write` runs before each replay of the graph, for what the host may change in between.
  void (*at_replay)(int index, std::function<void()> write) = nullptr;
  /// Waits for the work of all threads on the device.
  void (*synchronize)(int index) = nullptr;

  MemoryStats (*memory_stats)(int index) = nullptr;
  void (*reset_peak)(int index) = nullptr;
  void (*empty_cache)(int index) = nullptr;
};

/// The backend makes itself known by calling this once, from the initialiser of a global.
void register_cuda(const Backend* (*make)());

/// Why tensors cannot be on `device`; empty if they can.
std::string absence_of(const Device& device);

/// The backend of `device`, which is there. Throws Error if this build has no CUDA, the machine no such
/// device.
const Backend& backend(const Device& device);

/// Whether tensors of the device are in the CPU's memory.
inline bool in_host_memory(const Device& device) { return device.type != Device::Type::cuda; }

/// Whether work on the device is being captured, so that no value is known, and the capture's number, or 0:
/// of the CPU's memory never.
inline uint64_t capture_on(const Device& device) {
  return in_host_memory(device) ? 0 : backend(device).capture(device.index);
}
inline bool is_capturing(const Device& device) { return capture_on(device) != 0; }

}  // namespace mezzo
