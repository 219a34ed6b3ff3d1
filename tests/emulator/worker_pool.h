// OS threads that wait for grids to run.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace emulator {

class WorkerPool {
 public:
  static WorkerPool& instance();
  ~WorkerPool();

  /// Calls `work` on `workers` threads, of which the caller is one; returns when all have returned.
  void run(unsigned workers, const std::function<void()>& work);

 private:
  void wait_for_work(unsigned number);

  std::mutex mutex_;
  std::condition_variable start_, end_;
  std::vector<std::thread> threads_;
  const std::function<void()>* work_ = nullptr;
  unsigned wanted_ = 0, running_ = 0;
  std::uint64_t round_ = 0;
  bool closing_ = false;
};

}  // namespace emulator
