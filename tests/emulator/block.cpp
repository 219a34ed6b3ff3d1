#include "tests/emulator/block.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>

#include "tests/emulator/diagnosis.h"
#include "tests/emulator/errors.h"
#include "tests/emulator/sanitizers.h"

constinit thread_local uint3 threadIdx{}, blockIdx{};
constinit thread_local dim3 blockDim{}, gridDim{};

namespace emulator {

constinit thread_local ThreadState current;

namespace {

/// Of a CUDA thread. AddressSanitizer makes frames larger.
constexpr std::size_t kStackBytes = (sanitizers::kAddress ? 256 : 64) << 10;

bool same_place(const Location& a, const Location& b) {
  return a.line == b.line && std::strcmp(a.file, b.file) == 0;
}

/// Blocks that no thread has. Never destroyed: while a thread ends, destructors may still wait for its work.
struct Spare {
  std::mutex mutex;
  std::vector<Block*> blocks;
};
Spare& spare() {
  static auto* const all = new Spare;
  return *all;
}

constinit thread_local Block* of_thread = nullptr;

/// Lets another thread have the block when this one ends.
struct Giver {
  ~Giver() {
    const std::lock_guard lock(spare().mutex);
    spare().blocks.push_back(std::exchange(of_thread, nullptr));
  }
  void arm() const {}  ///< a thread_local object that is not used is not destroyed
};

}  // namespace

Block& Block::of_this_thread() {
  if (of_thread) return *of_thread;
  use_signal_stack();
  const std::lock_guard lock(spare().mutex);
  if (spare().blocks.empty()) {
    of_thread = new Block;
  } else {
    of_thread = spare().blocks.back();
    spare().blocks.pop_back();
  }
  thread_local const Giver giver;
  giver.arm();
  return *of_thread;
}

void Block::run(const Launch& launch, std::uint64_t number, const std::vector<uint3>& thread_indices) {
  const ThreadState outside = current;
  start(launch, number, thread_indices);
  make_ready_all(Status::fresh);
  next(first_thread_);
  running_ = take_fiber();
  Fiber::switch_between(caller_, *running_);

  if (!shared_.finish() && !failed_) {
    device_error(cudaErrorIllegalAddress, "something wrote outside a shared variable" + running_thread());
  }
  if (failed_) {  // suspended stacks are abandoned
    free_fibers_.clear();
    fibers_.clear();
  }
  current = outside;
  launch_ = nullptr;
}

void Block::start(const Launch& launch, std::uint64_t number, const std::vector<uint3>& thread_indices) {
  launch_ = &launch;
  thread_indices_ = &thread_indices;
  threads_ = static_cast<unsigned>(thread_indices.size());
  done_ = waiting_ = barriers_ = 0;
  nonzero_ = 0;
  failed_ = false;
  head_ = tail_ = 0;
  status_.assign(threads_, Status::fresh);
  fiber_of_.assign(threads_, nullptr);
  const unsigned warps = (threads_ + kWarpSize - 1) / kWarpSize;
  if (warps_.size() < warps) warps_.resize(warps);
  for (unsigned i = 0; i < warps; ++i) warps_[i].start(std::min(kWarpSize, threads_ - i * kWarpSize));
  random_ = {(settings().seed + 0x9e3779b97f4a7c15ull * (number + 1)) | 1};
  shared_.start(launch.shared_bytes);

  const std::uint64_t row = number / launch.grid.x;
  blockIdx = {static_cast<unsigned>(number % launch.grid.x), static_cast<unsigned>(row % launch.grid.y),
              static_cast<unsigned>(row / launch.grid.y)};
  blockDim = launch.block;
  gridDim = launch.grid;
  static std::atomic<unsigned> runs{0};
  current.block = static_cast<unsigned>(number);
  current.run = ++runs;
  const auto arguments = reinterpret_cast<std::uintptr_t>(launch.kernel.arguments.get());
  current.arguments = {arguments, arguments + launch.kernel.argument_bytes};
}

// Fibers
// ---------------------------------------------------------------------------------------------------------

Fiber* Block::take_fiber() {
  if (free_fibers_.empty()) {
    fibers_.push_back(std::make_unique<Fiber>(kStackBytes, &Block::run_fiber, this));
    return fibers_.back().get();
  }
  Fiber* const fiber = free_fibers_.back();
  free_fibers_.pop_back();
  return fiber;
}

void Block::run_threads() {
  Fiber* const self = running_;
  while (true) {
    unsigned thread = first_thread_;
    while (true) {
      run_thread(thread);
      if (head_ == tail_) resolve_stall();
      if (!next(thread)) {
        free_fibers_.push_back(self);
        leave(self);
        break;
      }
      if (status_[thread] != Status::fresh) {  // it has a stack, so this one is free
        free_fibers_.push_back(self);
        running_ = fiber_of_[thread];
        Fiber::switch_between(*self, *running_);
        break;
      }
    }
  }
}

void Block::run_thread(unsigned thread) {
  enter(thread);
  current.launch = launch_->number;  // from here on the checker looks
  launch_->kernel.call(launch_->kernel.function, launch_->kernel.arguments.get());
  current.launch = 0;
  status_[thread] = Status::done;
  ++done_;
  return_from_warp(thread);
}

void Block::enter(unsigned thread) {
  threadIdx = (*thread_indices_)[thread];
  current.thread = thread;
  current.barriers = barriers_;
  current.warp_syncs = warps_[thread / kWarpSize].syncs;
  current.stack = running_->stack();
}

/// Leaves the running thread, which has to wait; returns when it goes on.
void Block::suspend(Status status) {
  const unsigned self = current.thread;
  Fiber* const fiber = running_;
  status_[self] = status;
  fiber_of_[self] = fiber;
  if (head_ == tail_) resolve_stall();
  unsigned thread = 0;
  if (!next(thread)) {
    leave(fiber);
  } else if (thread != self) {
    if (status_[thread] == Status::fresh) {
      first_thread_ = thread;
      running_ = take_fiber();
    } else {
      running_ = fiber_of_[thread];
    }
    Fiber::switch_between(*fiber, *running_);
  }
  status_[self] = Status::ready;
  enter(self);
}

/// Back to run().
void Block::leave(Fiber* fiber) {
  running_ = nullptr;
  Fiber::switch_between(*fiber, caller_);
}

void Block::fail(cudaError_t code, std::string message) {
  current.launch = 0;
  message += running_thread();
  device_error(code, message);
  std::string().swap(message);  // this stack is abandoned, and with it what nobody frees before
  failed_ = true;
  leave(running_);
  std::abort();
}

// What can run
// ---------------------------------------------------------------------------------------------------

bool Block::next(unsigned& thread) {
  if (head_ == tail_) return false;
  thread = queue_[head_++ % kMaxThreads];
  return true;
}

void Block::make_ready(unsigned thread) { queue_[tail_++ % kMaxThreads] = thread; }

void Block::make_ready_all(Status waiting) {
  order_.clear();
  for (unsigned thread = 0; thread < threads_; ++thread) {
    if (status_[thread] == waiting) order_.push_back(thread);
  }
  const Settings::Order order = settings().order;
  if (order == Settings::Order::reverse) std::reverse(order_.begin(), order_.end());
  if (order == Settings::Order::random) {
    for (std::size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[random_.below(i)]);
  }
  for (const unsigned thread : order_) make_ready(thread);
}

void Block::wake(unsigned warp, unsigned lanes) {
  const std::size_t first = settings().order == Settings::Order::random ? random_.below(kWarpSize) : 0;
  for (unsigned i = 0; i < kWarpSize; ++i) {
    const unsigned lane = (static_cast<unsigned>(first) + i) % kWarpSize;
    if (lanes >> lane & 1u) make_ready(warp * kWarpSize + lane);
  }
}

/// Nothing can run: all is done, all wait at the barrier, or there is a mistake.
void Block::resolve_stall() {
  if (done_ == threads_ || failed_) return;
  if (waiting_ + done_ == threads_) {  // of which some are done, or the last to come would have released it
    std::string message = "__syncthreads() at " + to_string(barrier_at_) + " is reached by " +
                          std::to_string(waiting_) + " of " + std::to_string(threads_) +
                          " threads, the others have returned";
    fail(cudaErrorLaunchFailure, std::move(message));
  }
  std::string message = "deadlock";
  if (waiting_) {
    message +=
        "; " + std::to_string(waiting_) + " threads wait at __syncthreads() at " + to_string(barrier_at_);
  }
  for (unsigned warp = 0; warp * kWarpSize < threads_; ++warp) {
    for (const Rendezvous& meeting : warps_[warp].meetings) {
      if (!meeting.arrived) continue;
      char lanes[64];
      std::snprintf(lanes, sizeof lanes, "; lanes %08x of mask %08x of warp %u wait at ", meeting.arrived,
                    meeting.mask, warp);
      message += lanes + to_string(meeting.at);
    }
  }
  fail(cudaErrorLaunchTimeout, std::move(message));
}

// Meetings
// -------------------------------------------------------------------------------------------------------

int Block::barrier(int value, Reduction reduction, Location at) {
  if (!waiting_) {
    barrier_at_ = at;
  } else if (!same_place(barrier_at_, at)) {
    std::string message = "threads of one block wait at different barriers, at " + to_string(barrier_at_) +
                          " and " + to_string(at);
    fail(cudaErrorLaunchFailure, std::move(message));
  }
  nonzero_ += value != 0;
  ++waiting_;
  status_[current.thread] = Status::at_barrier;
  if (waiting_ == threads_) release_barrier();
  suspend(Status::at_barrier);
  if (reduction == Reduction::count) return last_nonzero_;
  return reduction == Reduction::all ? last_nonzero_ == last_waiting_ : last_nonzero_ != 0;
}

void Block::release_barrier() {
  last_nonzero_ = nonzero_;
  last_waiting_ = static_cast<int>(waiting_);
  nonzero_ = 0;
  waiting_ = 0;
  ++barriers_;
  make_ready_all(Status::at_barrier);
}

const std::uint64_t* Block::meet(unsigned mask, std::uint64_t value, WarpOperation operation, Location at) {
  const unsigned number = current.thread / kWarpSize, lane = current.thread % kWarpSize;
  Warp& warp = warps_[number];
  if (!(mask >> lane & 1u)) {
    std::string message = "the lane that calls is not in the mask of the warp operation at " + to_string(at);
    fail(cudaErrorLaunchFailure, std::move(message));
  }
  Rendezvous* const meeting = warp.meeting(mask);
  if (!meeting) {
    std::string message = "too many masks in use at once by the warp operation at " + to_string(at);
    fail(cudaErrorLaunchFailure, std::move(message));
  }
  if (meeting->arrived && (meeting->operation != operation || !same_place(meeting->at, at))) {
    std::string message = "lanes of one warp are in different warp operations, at " + to_string(meeting->at) +
                          " and " + to_string(at);
    fail(cudaErrorLaunchFailure, std::move(message));
  }
  meeting->operation = operation;
  meeting->at = at;
  meeting->arrive(lane, value);
  const unsigned round = meeting->round();
  if (meeting->arrived == (mask & warp.live())) {
    const unsigned came = meeting->complete();
    if (operation == WarpOperation::sync && came == warp.live()) current.warp_syncs = ++warp.syncs;
    wake(number, came & ~(1u << lane));
  } else {
    suspend(Status::at_warp);
  }
  return meeting->read(round);
}

/// A lane that returns may be the last for whom others waited.
void Block::return_from_warp(unsigned thread) {
  const unsigned number = thread / kWarpSize;
  Warp& warp = warps_[number];
  warp.returned |= 1u << (thread % kWarpSize);
  for (Rendezvous& meeting : warp.meetings) {
    if (meeting.arrived && meeting.arrived == (meeting.mask & warp.live())) wake(number, meeting.complete());
  }
}

void* Block::shared_variable(const void* key, std::size_t bytes, Location at) {
  if (void* const found = shared_.find(key)) return found;
  void* const made = shared_.make(key, bytes);
  if (made) return made;
  std::string message = "more than 48 KiB of static shared memory at " + to_string(at);
  fail(cudaErrorInvalidValue, std::move(message));
}

}  // namespace emulator
