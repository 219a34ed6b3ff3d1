// Free blocks of memory of one size, linked through their own first bytes.
#pragma once

#include <new>

namespace mezzo {

class FreeList {
 public:
  /// Null if there is none.
  void* pop() noexcept {
    Block* const block = first_;
    if (!block) return nullptr;
    first_ = block->next;
    __builtin_prefetch(first_, 1);  // the next to go: in a long list it has left the caches
    return block;
  }
  /// The block has room for a pointer, in memory that the CPU can write.
  void push(void* block) noexcept { first_ = new (block) Block{first_}; }

 private:
  struct Block {
    Block* next;
  };
  Block* first_ = nullptr;
};

}  // namespace mezzo
