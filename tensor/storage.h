// The memory behind tensors: shared by all views of it, counted, versioned.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "tensor/device.h"

namespace mezzo {

/// A block of device memory. Tensors that are views of each other share one.
class Storage {
 public:
  /// Allocates from the device's cache. Throws Error, with the bytes asked for and held, if there is no
  /// memory.
  Storage(size_t bytes, const Device& device);
  /// Memory of somebody else, which `owner` keeps alive; it may be empty for memory that outlives the
  /// tensors.
  Storage(void* data, size_t bytes, const Device& device, std::shared_ptr<const void> owner);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  const Device& device() const { return device_; }

  /// Number of in-place changes so far. A tensor saved for backward remembers it, so a later change is
  /// noticed.
  uint32_t version() const { return version_.load(std::memory_order_relaxed); }
  void bump_version() { version_.fetch_add(1, std::memory_order_relaxed); }
  /// Number of in-place changes that were recorded: each gives the changed tensor a new history, but not the
  /// views made of it before, which must not be used after.
  uint32_t rebases() const { return rebases_.load(std::memory_order_relaxed); }
  void bump_rebases() { rebases_.fetch_add(1, std::memory_order_relaxed); }

 private:
  void* data_;
  size_t bytes_;
  Device device_;
  bool borrowed_ = false;
  std::shared_ptr<const void> owner_;  ///< of borrowed memory
  std::atomic<uint32_t> version_{0}, rebases_{0};
};

/// Bytes of a device's memory in mezzo's hands.
struct MemoryStats {
  size_t live = 0;                ///< in storages now
  size_t peak = 0;                ///< the most that `live` has been
  size_t cached = 0;              ///< kept for reuse
  size_t system_allocations = 0;  ///< how often the system was asked
};

MemoryStats memory_stats(const Device& device = {});
/// Sets `peak` back to `live`.
void reset_peak_memory(const Device& device = {});
/// Gives the cached blocks back to the system.
void empty_cache(const Device& device = {});

/// The allocator under Storage: 64-byte aligned blocks, kept in free lists by size instead of being returned,
/// since the system maps fresh pages at a sixteenth of memory's speed and training asks for the same sizes
/// every step.
namespace memory {
void* allocate(size_t bytes, const Device& device);
void release(void* data, size_t bytes, const Device& device) noexcept;
}  // namespace memory

}  // namespace mezzo
