// Limiting gradients by their norm, which takes two passes: one for the norm of all, one to scale them.
// Arithmetic is in T, float or double; runs are added up in double.
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "tensor/cpu/kernel_families.h"
#include "tensor/cpu/parallel.h"
#include "tensor/cpu/runs.h"
#include "tensor/strided_loop.h"

namespace mezzo::cpu {
namespace {

/// f(run, n, grain) for runs of elements of the tensor as T, n <= kChunk; they are written back if f returns
/// true. Grains have their numbers and their bounds whatever the number of threads.
template <class T, class F>
void for_runs(const View& tensor, F&& f) {
  const View* const views[] = {&tensor};
  const StridedLoop loop{std::span(views)};
  const int64_t stride = loop.stride(0);
  parallel_for(loop.size(), kParallelElements, [&](int64_t begin, int64_t end) {
    T buffer[kChunk];
    for (int64_t grain = begin; grain < end; grain += kParallelElements) {
      loop.for_runs(grain, std::min(end, grain + kParallelElements),
                    [&](StridedLoop::Offsets at, int64_t length) {
                      for (int64_t n; length > 0; length -= n, at[0] += n * stride) {
                        n = std::min(length, kChunk);
                        T* run = read_run(tensor, at[0], stride, n, buffer);
                        if (f(run, n, grain / kParallelElements)) write_back(tensor, at[0], stride, n, run);
                      }
                    });
    }
  });
}

template <class T>
double power_sum(const T* x, int64_t n, double p) {
  T sum = 0;
  if (p == 2) {
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; ++i) sum += x[i] * x[i];
  } else if (p == 1) {
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; ++i) sum += std::abs(x[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) sum += std::pow(std::abs(x[i]), static_cast<T>(p));
  }
  return static_cast<double>(sum);
}

/// NaN if there is one, as are all that come after.
double larger(double a, double b) { return b > a || std::isnan(b) ? b : a; }

template <class T>
double largest_of(const T* x, int64_t n) {
  double largest = 0;
  for (int64_t i = 0; i < n; ++i) largest = larger(largest, static_cast<double>(std::abs(x[i])));
  return largest;
}

/// The part of one tensor in the norm: its largest element or its sum of powers.
template <class T>
double part_of(const View& tensor, double p) {
  const bool infinite = std::isinf(p);
  std::vector<double> grains(
      static_cast<size_t>((tensor.numel() + kParallelElements - 1) / kParallelElements));
  for_runs<T>(tensor, [&](const T* run, int64_t n, int64_t grain) {
    double& part = grains[static_cast<size_t>(grain)];
    part = infinite ? larger(part, largest_of(run, n)) : part + power_sum(run, n, p);
    return false;
  });
  return infinite ? std::accumulate(grains.begin(), grains.end(), 0.0, larger)
                  : std::accumulate(grains.begin(), grains.end(), 0.0);
}

void norm(const View& total, std::span<const View> tensors, double p) {
  double sum = 0;
  for (const View& tensor : tensors) {
    const double part =
        tensor.dtype == DType::float64 ? part_of<double>(tensor, p) : part_of<float>(tensor, p);
    sum = std::isinf(p) ? larger(sum, part) : sum + part;
  }
  if (!std::isinf(p)) sum = p == 2 ? std::sqrt(sum) : std::pow(sum, 1 / p);
  write_back(total, 0, 1, 1, &sum);
}

template <class T>
void scale(const View& tensor, T factor) {
  for_runs<T>(tensor, [&](T* run, int64_t n, int64_t) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) run[i] *= factor;
    return true;
  });
}

void clip(std::span<const View> tensors, const View& total, double max_norm) {
  double norm;
  const double factor = max_norm / (*read_run(total, 0, 1, 1, &norm) + 1e-6);
  if (factor >= 1) return;
  for (const View& tensor : tensors) {
    if (tensor.dtype == DType::float64)
      scale(tensor, factor);
    else
      scale(tensor, static_cast<float>(factor));
  }
}

}  // namespace

void add_clip(Kernels& table) {
  table.norm = norm;
  table.clip = clip;
}

}  // namespace mezzo::cpu
