// The one place that starts threads.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>

#include "tensor/threads.h"

namespace mezzo::cpu {

/// The most parts that parallel_for makes of n.
inline int64_t parallel_parts(int64_t n, int64_t grain) {
  const int64_t grains = (n + grain - 1) / grain;
  return grains > 1 ? std::min<int64_t>(num_threads(), grains) : grains;
}

/// Calls f(begin, end) on parts of [0, n), in parallel if there is more than `grain` to do. Parts are bounded
/// by multiples of `grain`, whatever the number of threads, so a kernel that combines one value per grain in
/// order gives the same bits for every number of threads. f must not throw. It may take the number of its
/// part as a third argument, to find memory that parallel_parts(n, grain) parts have each their own of.
template <class F>
void parallel_for(int64_t n, int64_t grain, F&& f) {
  const auto run = [&](int64_t begin, int64_t end, int64_t part) {
    if constexpr (std::invocable<F, int64_t, int64_t, int64_t>)
      f(begin, end, part);
    else
      f(begin, end);
  };
  const int64_t grains = (n + grain - 1) / grain, threads = parallel_parts(n, grain);
  if (threads <= 1) {
    if (n > 0) run(0, n, 0);
    return;
  }
#ifdef _OPENMP
#pragma omp parallel for num_threads(static_cast <int>(threads)) schedule(static)
#endif
  for (int64_t t = 0; t < threads; ++t) {
    const int64_t begin = grains * t / threads * grain, end = std::min(n, grains * (t + 1) / threads * grain);
    if (begin < end) run(begin, end, t);
  }
}

/// While it lives, kernels and libraries called from this thread use it alone if the work is `small`: over
/// before another thread has woken.
class SmallWork {
 public:
  explicit SmallWork(bool small) : threads_(small ? num_threads() : 1) {
    if (threads_ > 1) set_num_threads(1);
  }
  ~SmallWork() {
    if (threads_ > 1) set_num_threads(threads_);
  }
  SmallWork(const SmallWork&) = delete;
  SmallWork& operator=(const SmallWork&) = delete;

 private:
  int threads_;  ///< to be set again
};

}  // namespace mezzo::cpu
