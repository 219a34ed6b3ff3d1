// The block that an OS thread runs.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <emulator/sync.h>

#include "tests/emulator/fiber.h"
#include "tests/emulator/launch.h"
#include "tests/emulator/settings.h"
#include "tests/emulator/shared_memory.h"
#include "tests/emulator/warp.h"

namespace emulator {

/// Runs the threads of one block, each until it returns or has to wait for others. A thread that never waits
/// costs no switch: the fiber that ran the thread before calls the kernel again. One per OS thread, used for
/// block after block.
class Block {
 public:
  static Block& of_this_thread();

  /// Runs the block of that number in the grid. `thread_indices` are those of all threads in order.
  void run(const Launch& launch, std::uint64_t number, const std::vector<uint3>& thread_indices);

  // Called by kernels:
  int barrier(int value, Reduction reduction, Location at);
  /// All lanes of `mask` meet; returns what each brought.
  const std::uint64_t* meet(unsigned mask, std::uint64_t value, WarpOperation operation, Location at);
  unsigned active_lanes() const { return warps_[current.thread / kWarpSize].live(); }
  void* shared_variable(const void* key, std::size_t bytes, Location at);
  /// Ends the kernel with an error.
  [[noreturn]] void fail(cudaError_t code, std::string message);

  const SharedMemory& shared() const { return shared_; }
  /// What runs, null between blocks.
  const Launch* launch() const { return launch_; }

 private:
  enum class Status : std::uint8_t { fresh, ready, at_barrier, at_warp, done };

  void start(const Launch& launch, std::uint64_t number, const std::vector<uint3>& thread_indices);
  static void run_fiber(void* block) { static_cast<Block*>(block)->run_threads(); }
  [[noreturn]] void run_threads();
  void run_thread(unsigned thread);
  void enter(unsigned thread);
  void suspend(Status status);
  Fiber* take_fiber();
  void leave(Fiber* fiber);
  bool next(unsigned& thread);
  void make_ready(unsigned thread);
  void make_ready_all(Status waiting);
  void wake(unsigned warp, unsigned lanes);
  void release_barrier();
  void return_from_warp(unsigned thread);
  void resolve_stall();

  Fiber caller_;  ///< the OS thread's own stack, from which run() is called
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> free_fibers_;
  Fiber* running_ = nullptr;
  unsigned first_thread_ = 0;  ///< that the fiber which is being entered runs

  const Launch* launch_ = nullptr;
  const std::vector<uint3>* thread_indices_ = nullptr;
  unsigned threads_ = 0, done_ = 0;
  std::vector<Status> status_;
  std::vector<Fiber*> fiber_of_;               ///< of each suspended thread
  std::array<unsigned, kMaxThreads> queue_{};  ///< a ring of threads that can run; each is in it once at most
  std::size_t head_ = 0, tail_ = 0;
  std::vector<unsigned> order_;
  RandomNumbers random_{1};
  bool failed_ = false;

  unsigned waiting_ = 0, barriers_ = 0;
  Location barrier_at_;
  int nonzero_ = 0;                          ///< values other than 0 that came to the barrier so far
  int last_nonzero_ = 0, last_waiting_ = 0;  ///< of the barrier that was passed last
  std::vector<Warp> warps_;
  SharedMemory shared_;
};

/// While it lives the emulator's own code runs, which the checker is not to look at: it may use instrumented
/// copies of inline functions, of which the linker keeps one for the whole program.
class Unchecked {
 public:
  Unchecked() : launch_(std::exchange(current.launch, 0)) {}
  ~Unchecked() { current.launch = launch_; }
  Unchecked(const Unchecked&) = delete;
  Unchecked& operator=(const Unchecked&) = delete;

 private:
  unsigned launch_;
};

}  // namespace emulator
