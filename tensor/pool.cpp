#include "tensor/pool.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <new>

#include "tensor/free_list.h"

namespace mezzo::pool {

namespace {

constexpr size_t kStep = 32;            // sizes are multiples of it
constexpr size_t kClasses = 33;         // blocks above 1024 bytes are not pooled
constexpr size_t kMostBytes = 1 << 28;  // that a list keeps: the nodes of a million ops

/// AddressSanitizer is to see each object come and go.
#if defined(__has_feature)
constexpr bool kPools = !__has_feature(address_sanitizer);
#else
constexpr bool kPools = true;
#endif

struct List {
  FreeList blocks;
  size_t bytes = 0;
};

/// Trivial to make and to destroy: reaching it is one instruction, also in the last moments of a thread.
struct Lists {
  std::array<List, kClasses> by_class{};
  bool closed = false;  ///< the thread ends: nothing is kept any more
};
constinit thread_local Lists lists;

std::atomic<size_t> taken_from_system{0};

/// Empties the thread's lists at its end.
struct Closer {
  ~Closer() {
    lists.closed = true;
    for (List& list : lists.by_class) {
      while (void* block = list.blocks.pop()) ::operator delete(block);
    }
  }
  void arm() const {}  ///< a thread_local object that is not used is not destroyed
};

size_t class_of(size_t bytes) { return (std::max<size_t>(bytes, 1) + kStep - 1) / kStep; }

void* take_from_system(size_t bytes) {
  thread_local const Closer closer;
  closer.arm();
  taken_from_system.fetch_add(1, std::memory_order_relaxed);
  return ::operator new(bytes);
}

}  // namespace

void* allocate(size_t bytes) {
  if (!kPools) return ::operator new(bytes);
  const size_t number = class_of(bytes);
  if (number >= kClasses) return take_from_system(bytes);
  List& list = lists.by_class[number];
  void* const block = list.blocks.pop();
  if (!block) return take_from_system(number * kStep);
  list.bytes -= number * kStep;
  return block;
}

void release(void* block, size_t bytes) noexcept {
  const size_t number = class_of(bytes);
  if (!kPools || number >= kClasses || lists.closed) return ::operator delete(block);
  List& list = lists.by_class[number];
  if (list.bytes >= kMostBytes) return ::operator delete(block);
  list.blocks.push(block);
  list.bytes += number * kStep;
}

size_t system_allocations() { return taken_from_system.load(std::memory_order_relaxed); }

}  // namespace mezzo::pool
