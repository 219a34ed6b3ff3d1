// Switching stacks by <ucontext.h>, for processors without code of their own.
#include <ucontext.h>

#include "tests/emulator/fiber.h"

namespace emulator {

void Context::prepare(void* stack_bottom, std::size_t stack_bytes, void (*start)()) {
  auto* const state = new ucontext_t{};
  getcontext(state);
  state->uc_stack.ss_sp = stack_bottom;
  state->uc_stack.ss_size = stack_bytes;
  makecontext(state, start, 0);
  saved = state;
}

void Context::release() { delete static_cast<ucontext_t*>(saved); }

void Context::switch_between(Context& from, Context& to) {
  if (!from.saved) from.saved = new ucontext_t{};  // an OS thread's own stack; lives as long as the thread
  swapcontext(static_cast<ucontext_t*>(from.saved), static_cast<ucontext_t*>(to.saved));
}

const void* program_counter(const void*) { return nullptr; }

}  // namespace emulator
