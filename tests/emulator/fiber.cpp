#include "tests/emulator/fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>

#include "tests/emulator/sanitizers.h"

namespace emulator {

namespace {

// A new stack finds out by these who it is and where it was entered from.
constinit thread_local Fiber* entered = nullptr;
constinit thread_local Fiber* left = nullptr;

}  // namespace

Fiber::Fiber(std::size_t stack_bytes, Entry entry, void* argument)
    : mapping_bytes_(stack_bytes + kGuardBytes),
      stack_bytes_(stack_bytes),
      entry_(entry),
      argument_(argument) {
  void* const memory = mmap(nullptr, mapping_bytes_, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  mapping_ = static_cast<char*>(memory);
  mprotect(mapping_, kGuardBytes, PROT_NONE);
  stack_bottom_ = mapping_ + kGuardBytes;
  context_.prepare(mapping_ + kGuardBytes, stack_bytes, &Fiber::start);
}

Fiber::~Fiber() {
  context_.release();
  if (!mapping_) return;
  sanitizers::unpoison(mapping_, mapping_bytes_);
  munmap(mapping_, mapping_bytes_);
}

Range Fiber::stack() const {
  const auto low = reinterpret_cast<std::uintptr_t>(stack_bottom_);
  return {low, low + stack_bytes_};
}

void Fiber::start() {
  Fiber* const self = entered;
  sanitizers::enter_stack(nullptr, &left->stack_bottom_, &left->stack_bytes_);
  self->entry_(self->argument_);
  __builtin_trap();
}

void Fiber::switch_between(Fiber& from, Fiber& to) {
  entered = &to;
  left = &from;
  sanitizers::leave_stack(&from.sanitizer_state_, to.stack_bottom_, to.stack_bytes_);
  Context::switch_between(from.context_, to.context_);
  sanitizers::enter_stack(from.sanitizer_state_, &left->stack_bottom_, &left->stack_bytes_);
}

}  // namespace emulator
