// Stacks of their own within one OS thread, switched by hand: each suspended CUDA thread is one.
#pragma once

#include <cstddef>

#include <emulator/thread.h>

namespace emulator {

/// Where a suspended stack goes on. In context_x86_64.cpp or context_portable.cpp.
struct Context {
  void* saved = nullptr;

  /// Prepares an unused stack so that the first switch to it calls `start`, which never returns.
  void prepare(void* stack_bottom, std::size_t stack_bytes, void (*start)());
  void release();
  /// Suspends the running stack into `from` and goes on in `to`.
  static void switch_between(Context& from, Context& to);
};

/// The instruction at which a signal came, from what its handler gets; null: this processor's state is not
/// known.
const void* program_counter(const void* signal_context);

/// Below each fiber's stack, to which nobody has access: a kernel that needs more stack faults there.
constexpr std::size_t kGuardBytes = 4096;

class Fiber {
 public:
  using Entry = void (*)(void* argument);

  /// Stands for the stack of the OS thread that makes it.
  Fiber() = default;
  /// A stack on which `entry` will run; it never returns.
  Fiber(std::size_t stack_bytes, Entry entry, void* argument);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  static void switch_between(Fiber& from, Fiber& to);

  /// The addresses of its stack.
  Range stack() const;

 private:
  static void start();

  Context context_;
  char* mapping_ = nullptr;
  std::size_t mapping_bytes_ = 0;
  const void* stack_bottom_ = nullptr;
  std::size_t stack_bytes_ = 0;
  Entry entry_ = nullptr;
  void* argument_ = nullptr;
  void* sanitizer_state_ = nullptr;
};

}  // namespace emulator
