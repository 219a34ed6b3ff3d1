// Memory of the small objects that every op makes and drops: what handles point to, nodes, lists of tensors.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace mezzo {

/// Free lists by size, one set for each thread, so that taking a block is a pop without a lock. A block goes
/// to the list of the thread that releases it; what a list has no room for, and large blocks, are the
/// system's.
namespace pool {
void* allocate(size_t bytes);
void release(void* block, size_t bytes) noexcept;

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
