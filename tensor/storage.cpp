#include "tensor/storage.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <utility>

#include "tensor/backend.h"
#include "tensor/error.h"
#include "tensor/free_list.h"

namespace mezzo {

namespace {

constexpr size_t kAlignment = 64;

/// Blocks of one size. The size that is really allocated for `bytes` is rounded up to an eighth of the power
/// of two below, so that blocks of nearly the same size can stand in for each other and at most an eighth is
/// wasted.
struct SizeClass {
  static constexpr size_t kClasses = 8 * 64;

  size_t number, size;

  explicit SizeClass(size_t bytes) {
    const size_t step = std::max(kAlignment, std::bit_floor(bytes) / 8);
    // Divisions by `step` were 3 % of a small op.
    const auto shift = static_cast<size_t>(std::countr_zero(step));
    const size_t steps = std::max<size_t>(1, (bytes + step - 1) >> shift);
    size = steps << shift;
    number = 8 * (shift - std::countr_zero(kAlignment)) + steps;
  }
};

/// Memory from the system, aligned; null if there is none. Large blocks get large pages where the system has
/// them: a walk through 64 MiB of small ones takes up to half as long again, waiting for the addresses of
/// 16,384 pages.
void* system_allocate(size_t size) {
  constexpr size_t kLargePage = size_t{2} << 20;
  if (size < 2 * kLargePage) return std::aligned_alloc(kAlignment, size);
  void* data = std::aligned_alloc(kLargePage, (size + kLargePage - 1) / kLargePage * kLargePage);
#ifdef MADV_HUGEPAGE
  if (data) madvise(data, size, MADV_HUGEPAGE);  // refused: small pages do as well
#endif
  return data;
}

/// A lock for some ten instructions at a time. Every op takes one twice: here that is two locked instructions
/// in all, of a mutex four and four calls, which were a tenth of a small op.
class BriefLock {
 public:
  void lock() noexcept {
    while (taken_.test_and_set(std::memory_order_acquire)) std::this_thread::yield();
  }
  void unlock() noexcept { taken_.clear(std::memory_order_release); }

 private:
  std::atomic_flag taken_;
};

/// Free lists of CPU memory by size class, and the count of what is out.
class Cache {
 public:
  void* allocate(size_t bytes) {
    const auto [number, size] = SizeClass(bytes);
    if (void* const data = take(number, size)) return data;
    void* data = system_allocate(size);
    if (!data) {
      clear();
      data = system_allocate(size);
    }
    if (!data) return nullptr;
    const std::lock_guard guard(lock_);
    ++stats_.system_allocations;
    count(size);
    return data;
  }

  void release(void* data, size_t bytes) noexcept {
    const auto [number, size] = SizeClass(bytes);
    const std::lock_guard guard(lock_);
    stats_.live -= size;
    free_[number].push(data);
    stats_.cached += size;
  }

  void clear() {
    Lists taken;  // given back outside the lock, which is brief
    {
      const std::lock_guard guard(lock_);
      std::swap(taken, free_);
      stats_.cached = 0;
    }
    for (FreeList& blocks : taken) {
      while (void* data = blocks.pop()) std::free(data);
    }
  }

  MemoryStats stats() {
    const std::lock_guard guard(lock_);
    return stats_;
  }

  void reset_peak() {
    const std::lock_guard guard(lock_);
    stats_.peak = stats_.live;
  }

 private:
  /// A free block; null if there is none.
  void* take(size_t number, size_t size) {
    const std::lock_guard guard(lock_);
    void* const data = free_[number].pop();
    if (!data) return nullptr;
    stats_.cached -= size;
    count(size);
    return data;
  }

  void count(size_t size) {
    stats_.live += size;
    stats_.peak = std::max(stats_.peak, stats_.live);
  }

  using Lists = std::array<FreeList, SizeClass::kClasses>;

  BriefLock lock_;
  Lists free_;
  MemoryStats stats_;
};

/// One cache a device type: cpu and reference share the machine's memory but not the count. Never destroyed,
/// since tensors in static storage may be freed after it would be.
Cache& cache(const Device& device) {
  static auto* const caches = new std::array<Cache, Device::kTypes>;
  return (*caches)[static_cast<size_t>(device.type)];
}

}  // namespace

namespace memory {

void* allocate(size_t bytes, const Device& device) {
  if (!in_host_memory(device)) return backend(device).allocate(bytes, device.index);
  void* data = cache(device).allocate(bytes);
  if (!data) {
    const MemoryStats held = memory_stats(device);
    fail("allocate", text("no memory on ", to_string(device), " for ", bytes, " bytes; tensors hold ",
                          held.live, " bytes, the cache ", held.cached));
  }
  return data;
}

void release(void* data, size_t bytes, const Device& device) noexcept {
  if (in_host_memory(device))
    cache(device).release(data, bytes);
  else
    backend(device).release(data, device.index);
}

}  // namespace memory

Storage::Storage(size_t bytes, const Device& device)
    : data_(memory::allocate(bytes, device)), bytes_(bytes), device_(device) {}

Storage::Storage(void* data, size_t bytes, const Device& device, std::shared_ptr<const void> owner)
    : data_(data), bytes_(bytes), device_(device), borrowed_(true), owner_(std::move(owner)) {}

Storage::~Storage() {
  if (!borrowed_) memory::release(data_, bytes_, device_);
}

MemoryStats memory_stats(const Device& device) {
  return in_host_memory(device) ? cache(device).stats() : backend(device).memory_stats(device.index);
}

void reset_peak_memory(const Device& device) {
  if (in_host_memory(device))
    cache(device).reset_peak();
  else
    backend(device).reset_peak(device.index);
}

void empty_cache(const Device& device) {
  if (in_host_memory(device))
    cache(device).clear();
  else
    backend(device).empty_cache(device.index);
}

}  // namespace mezzo
