// Memory of the devices, and pinned memory of the host.
#pragma once

#include <cstddef>

#include <emulator/thread.h>

namespace emulator {

constexpr int kNoDevice = -1;
constexpr int kEveryDevice = -2;

/// Memory on a device, full of NaN. Null: it has not that much left.
void* allocate(int device, std::size_t bytes);
/// False if nothing is allocated at this address.
bool release(void* memory);
/// Looks for what was written beside allocations that still live.
void check_gaps();

/// The device at whose memory the address lies, allocated or not.
int device_of(const void* address);
/// The live allocation around an address: an empty range if there is none.
Range allocation_at(std::uintptr_t address);
/// Whether these bytes lie in one live allocation of the device.
bool holds(int device, const void* address, std::size_t bytes);
/// All addresses that memory of the device can have.
Range addresses_of(int device);

struct MemoryUse {
  std::size_t used, total;
};
MemoryUse memory_use(int device);

/// Pinned memory of the host, which devices reach too.
void* allocate_pinned(std::size_t bytes);
bool release_pinned(void* memory);
bool pin(void* memory, std::size_t bytes);
bool unpin(void* memory);
bool is_pinned(const void* address);

/// While one lives the device's memory can be accessed. Without, host code that follows a device pointer
/// faults.
class DeviceAccess {
 public:
  explicit DeviceAccess(int device);
  ~DeviceAccess();
  DeviceAccess(const DeviceAccess&) = delete;
  DeviceAccess& operator=(const DeviceAccess&) = delete;

 private:
  int device_;
};

}  // namespace emulator
