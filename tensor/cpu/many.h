// Kernels over lists of tensors, all together shared between threads by size: many are small, and few large
// ones must be cut.
#pragma once

#include <algorithm>
#include <concepts>
#include <functional>
#include <span>

#include "tensor/cpu/parallel.h"
#include "tensor/cpu/runs.h"
#include "tensor/strided_loop.h"

namespace mezzo::cpu {

/// Calls f(x, begin, end) for parts of what `size` counts in each x of a list; or f(x, begin, end, grain)
/// with the number of one of count_grains(...), which has its bounds whatever the number of threads.
template <class X, class Size, class F>
void for_parts(std::span<const X> list, Size&& size, F&& f) {
  int64_t total = 0;
  for (const X& x : list) total += size(x);
  parallel_for(total, kParallelElements, [&](int64_t begin, int64_t end) {
    int64_t first = 0;  // of x, among all
    for (const X& x : list) {
      const int64_t last = first + size(x);
      for (int64_t at = std::max(begin, first), to; at < std::min(end, last); at = to) {
        const int64_t grain = at / kParallelElements;
        to = std::min({end, last, (grain + 1) * kParallelElements});
        if constexpr (std::invocable<F, const X&, int64_t, int64_t, int64_t>)
          f(x, at - first, to - first, grain);
        else
          f(x, at - first, to - first);
      }
      first = last;
    }
  });
}

/// The number of grains that for_parts cuts a list of tensors into.
inline int64_t count_grains(std::span<const View> list) {
  int64_t total = 0;
  for (const View& x : list) total += x.numel();
  return (total + kParallelElements - 1) / kParallelElements;
}

/// run[i] *= factor for n elements.
template <class T>
void multiply(T* run, int64_t n, T factor) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) run[i] *= factor;
}

/// f(run, n) for the elements [begin, end) of a tensor, n <= kChunk at a time as T; they are written back if
/// f returns true.
template <class T, class F>
void for_runs(const View& tensor, int64_t begin, int64_t end, F&& f) {
  const View* const views[] = {&tensor};
  const StridedLoop loop{std::span(views)};
  const int64_t stride = loop.stride(0);
  T buffer[kChunk];
  loop.for_runs(begin, end, [&](StridedLoop::Offsets at, int64_t length) {
    for (int64_t n; length > 0; length -= n, at[0] += n * stride) {
      n = std::min(length, kChunk);
      T* run = read_run(tensor, at[0], stride, n, buffer);
      if (f(run, n)) write_back(tensor, at[0], stride, n, run);
    }
  });
}

/// f(tensor, run, n, grain), as for_runs and for_parts do, for all elements of `tensors` in their compute
/// types.
template <class F>
void for_all_runs(std::span<const View> tensors, F&& f) {
  for_parts(tensors, std::mem_fn(&View::numel),
            [&](const View& tensor, int64_t begin, int64_t end, int64_t grain) {
              const auto run_in_grain = [&](auto* run, int64_t n) { return f(tensor, run, n, grain); };
              tensor.dtype == DType::float64 ? for_runs<double>(tensor, begin, end, run_in_grain)
                                             : for_runs<float>(tensor, begin, end, run_in_grain);
            });
}

}  // namespace mezzo::cpu
