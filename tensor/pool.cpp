#include "tensor/pool.h"

#include <atomic>
#include <cstdint>
#include <new>

namespace mezzo::pool {

namespace {

constexpr size_t kMostBytes = 1 << 28;  // that a list keeps: the nodes of a million ops

/// AddressSanitizer is to see each object come and go, in its own size.
#if defined(__has_feature)
constexpr bool kPools = !__has_feature(address_sanitizer);
#else
constexpr bool kPools = true;
#endif

enum class State : uint8_t { fresh, open, ended };
constinit thread_local State state = State::fresh;

/// Empties the thread's lists at its end.
struct Closer {
  ~Closer() {
    state = State::ended;
    for (List& list : lists) {
      list.room = 0;
      while (void* block = list.blocks.pop()) ::operator delete(block);
    }
  }
  void arm() const {}  ///< a thread_local object that is not used is not destroyed
};

std::atomic<size_t> taken_from_system{0};

}  // namespace

constinit thread_local std::array<List, kClasses> lists{};

void* take_from_system(size_t bytes) {
  if (!kPools) return ::operator new(bytes);
  taken_from_system.fetch_add(1, std::memory_order_relaxed);
  return ::operator new(class_of(bytes) * kStep);
}

void release_without_room(void* block, size_t bytes) noexcept {
  if (!kPools || state != State::fresh) return ::operator delete(block);
  thread_local const Closer closer;
  closer.arm();
  state = State::open;
  for (List& list : lists) list.room = kMostBytes;
  release(block, bytes);
}

size_t system_allocations() { return taken_from_system.load(std::memory_order_relaxed); }

}  // namespace mezzo::pool
