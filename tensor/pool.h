// Memory of the small objects that every op makes and drops: what handles point to, nodes, lists of tensors.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "tensor/free_list.h"

namespace mezzo {

/// Free lists by size, one set for each thread, so that taking a block is a pop without a lock. A block goes
/// to the list of the thread that releases it; what a list has no room for, and large blocks, are the
/// system's.
namespace pool {

constexpr size_t kStep = 32;     // sizes are multiples of it
constexpr size_t kClasses = 33;  // blocks above 1024 bytes are not pooled

/// Blocks of one size, and bytes of further ones that are kept: none until the thread releases its first
/// block, nor when it ends.
struct List {
  FreeList blocks;
  size_t room = 0;
};
/// Trivial to make and to destroy: reaching it is one instruction, also in the last moments of a thread.
extern constinit thread_local std::array<List, kClasses> lists;

constexpr size_t class_of(size_t bytes) { return (std::max<size_t>(bytes, 1) + kStep - 1) / kStep; }

void* take_from_system(size_t bytes);
/// The first block that a thread releases makes room; beyond it blocks go back to the system.
void release_without_room(void* block, size_t bytes) noexcept;

/// Inline, as release is: of a size that the caller knows it is a handful of instructions.
inline void* allocate(size_t bytes) {
  const size_t number = class_of(bytes);
  if (number < kClasses) {
    List& list = lists[number];
    if (void* const block = list.blocks.pop()) {
      list.room += number * kStep;
      return block;
    }
  }
  return take_from_system(bytes);
}

inline void release(void* block, size_t bytes) noexcept {
  const size_t number = class_of(bytes);
  if (number >= kClasses || lists[number].room < number * kStep) return release_without_room(block, bytes);
  lists[number].blocks.push(block);
  lists[number].room -= number * kStep;
}

/// Blocks that the pools of all threads have taken from the system so far.
size_t system_allocations();

}  // namespace pool

/// The pool for standard containers and std::allocate_shared.
template <class T>
struct PoolAllocator {
  static_assert(alignof(T) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);
  using value_type = T;

  PoolAllocator() = default;
  template <class U>
  PoolAllocator(const PoolAllocator<U>&) {}

  T* allocate(size_t n) { return static_cast<T*>(pool::allocate(n * sizeof(T))); }
  void deallocate(T* block, size_t n) noexcept { pool::release(block, n * sizeof(T)); }
  bool operator==(const PoolAllocator&) const { return true; }
};

template <class T>
using PooledVector = std::vector<T, PoolAllocator<T>>;

/// std::make_shared from the pool.
template <class T, class... Args>
std::shared_ptr<T> make_pooled(Args&&... args) {
  return std::allocate_shared<T>(PoolAllocator<T>(), std::forward<Args>(args)...);
}

}  // namespace mezzo
