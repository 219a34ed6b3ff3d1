// The one place that starts threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tensor/threads.h"

namespace mezzo::cpu {

/// Calls f(begin, end) on parts of [0, n), in parallel if there is more than `grain` to do. Parts are bounded
/// by multiples of `grain`, whatever the number of threads, so a kernel that combines one value per grain in
/// order gives the same bits for every number of threads. f must not throw.
template <class F>
void parallel_for(int64_t n, int64_t grain, F&& f) {
  const int64_t grains = (n + grain - 1) / grain;
  const int64_t threads = std::min<int64_t>(num_threads(), grains);
  if (threads <= 1) {
    if (n > 0) f(int64_t{0}, n);
    return;
  }
#ifdef _OPENMP
#pragma omp parallel for num_threads(static_cast <int>(threads)) schedule(static)
#endif
  for (int64_t t = 0; t < threads; ++t) {
    const int64_t begin = grains * t / threads * grain, end = std::min(n, grains * (t + 1) / threads * grain);
    if (begin < end) f(begin, end);
  }
}

}  // namespace mezzo::cpu
