#include "tests/emulator/worker_pool.h"

namespace emulator {

WorkerPool& WorkerPool::instance() {
  static WorkerPool pool;
  return pool;
}

WorkerPool::~WorkerPool() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  start_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WorkerPool::run(unsigned workers, const std::function<void()>& work) {
  const unsigned helpers = workers - 1;
  if (helpers == 0) return work();
  {
    std::lock_guard lock(mutex_);
    while (threads_.size() < helpers) {
      threads_.emplace_back(
          [this, number = static_cast<unsigned>(threads_.size())] { wait_for_work(number); });
    }
    work_ = &work;
    wanted_ = running_ = helpers;
    ++round_;
  }
  start_.notify_all();
  work();
  std::unique_lock lock(mutex_);
  end_.wait(lock, [&] { return running_ == 0; });
}

void WorkerPool::wait_for_work(unsigned number) {
  std::uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  while (true) {
    start_.wait(lock, [&] { return closing_ || (round_ != seen && number < wanted_); });
    if (closing_) return;
    seen = round_;
    lock.unlock();
    (*work_)();
    lock.lock();
    if (--running_ == 0) end_.notify_all();
  }
}

}  // namespace emulator
