// Gradients together: limiting them by their norm, which takes two passes, one for the norm of all, one to
// scale them; zeros. Arithmetic is in float or double; runs are added up in double.
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "tensor/cpu/kernel_families.h"
#include "tensor/cpu/many.h"

namespace mezzo::cpu {
namespace {

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

void norm(const View& total, std::span<const View> tensors, double p) {
  const bool infinite = std::isinf(p);
  std::vector<double> grains(static_cast<size_t>(count_grains(tensors)));
  for_all_runs(tensors, [&](const View&, const auto* run, int64_t n, int64_t grain) {
    double& part = grains[static_cast<size_t>(grain)];
    part = infinite ? larger(part, largest_of(run, n)) : part + power_sum(run, n, p);
    return false;
  });
  double sum = infinite ? std::accumulate(grains.begin(), grains.end(), 0.0, larger)
                        : std::accumulate(grains.begin(), grains.end(), 0.0);
  if (!infinite) sum = p == 2 ? std::sqrt(sum) : std::pow(sum, 1 / p);
  write_back(total, 0, 1, 1, &sum);
}

void clip(std::span<const View> tensors, const View& total, double max_norm) {
  double norm;
  const double factor = max_norm / (*read_run(total, 0, 1, 1, &norm) + 1e-6);
  if (factor >= 1) return;
  for_all_runs(tensors, [&]<class T>(const View&, T* run, int64_t n, int64_t) {
    multiply(run, n, static_cast<T>(factor));
    return true;
  });
}

void zero(std::span<const View> tensors) {
  for_all_runs(tensors, []<class T>(const View&, T* run, int64_t n, int64_t) {
    std::fill_n(run, n, T(0));
    return true;
  });
}

}  // namespace

void add_clip(Kernels& table) {
  table.norm = norm;
  table.clip = clip;
  table.zero = zero;
}

}  // namespace mezzo::cpu
