// Kernels of softmax. A team of threads (team.cuh) has a line of elements. Of lines that fit into a team's
// registers each operand is read once; longer ones are read twice, the second time from the cache as a rule.
#pragma once

#include <cmath>
#include <limits>

#include "cuda/lines.cuh"

namespace mezzo::cuda {

// --- forward: view 0 is the result, view 1 the input

/// One read, three passes over registers: the largest, the sum of exponentials, the result.
template <class T, class Out, class In, int size>
__global__ void __launch_bounds__(kMostThreads<T>) softmax_in_registers(const Lines<2> lines, bool log) {
  for_lines<size>(lines, [&](const auto& part) {
    T x[kKept / size][size], largest = -std::numeric_limits<T>::infinity(), sum = 0;
    part.for_kept([&](int64_t i, int r) {
      part.template load<In>(x[r], 1, i);
      for (const T value : x[r]) largest = Larger()(largest, value);
    });
    largest = part.merge(largest, Larger());
    part.for_kept([&](int64_t, int r) {
      for (T& value : x[r]) {
        value -= largest;
        const T e = std::exp(value);
        sum += e;
        if (!log) value = e;
      }
    });
    sum = part.merge(sum, Plus());
    const T log_sum = std::log(sum), factor = T(1) / sum;
    part.for_kept([&](int64_t i, int r) {
      for (T& value : x[r]) value = log ? value - log_sum : value * factor;
      part.template store<Out>(x[r], 0, i);
    });
  });
}

/// The largest of some elements x, and the sum of exp(x - largest) over them.
template <class T>
struct Exponentials {
  T largest, sum;
};

/// exp(x - largest), but finite while nothing has come but -infinity: it is forgotten once something does.
template <class T>
__device__ T exp_below(T x, T largest) {
  return largest == -std::numeric_limits<T>::infinity() ? T(1) : std::exp(x - largest);
}

/// Those of two groups of elements as those of both.
struct Join {
  template <class T>
  __device__ Exponentials<T> operator()(const Exponentials<T>& a, const Exponentials<T>& b) const {
    const T largest = Larger()(a.largest, b.largest);
    return {largest, a.sum * exp_below(a.largest, largest) + b.sum * exp_below(b.largest, largest)};
  }
};

/// Largest and sum together in the first read, the sum corrected where a larger one comes: Milakov and
/// Gimelshein, "Online normalizer calculation for softmax" (2018).
template <class T, class Out, class In, int size>
__global__ void __launch_bounds__(kMostThreads<T>) softmax_in_two_reads(const Lines<2> lines, bool log) {
  for_lines<size>(lines, [&](const auto& part) {
    Exponentials<T> all{-std::numeric_limits<T>::infinity(), 0};
    part.for_packs([&](int64_t i) {
      T x[size], largest = all.largest;
      part.template load<In>(x, 1, i);
      for (const T value : x) largest = Larger()(largest, value);
      all.sum *= exp_below(all.largest, largest);
      for (const T value : x) all.sum += exp_below(value, largest);
      all.largest = largest;
    });
    all = part.merge(all, Join());
    const T log_sum = std::log(all.sum), factor = T(1) / all.sum;
    part.for_packs([&](int64_t i) {
      T x[size];
      part.template load<In>(x, 1, i);
      for (T& value : x) {
        value -= all.largest;
        value = log ? value - log_sum : std::exp(value) * factor;
      }
      part.template store<Out>(x, 0, i);
    });
  });
}

// --- backward: view 0 is the result, view 1 the gradient g, view 2 softmax's result y

/// What y adds to the sum, and the gradient that comes of it: g * y and y * (g - sum), or g and g - exp(y) *
/// sum.
template <class T>
struct Gradient {
  bool log;
  __device__ T term(T g, T y) const { return log ? g : g * y; }
  __device__ T result(T g, T y, T sum) const { return log ? g - std::exp(y) * sum : y * (g - sum); }
};

/// One read of both operands: the sum, then the gradient.
template <class T, class E, int size>
__global__ void __launch_bounds__(kMostThreads<T>) softmax_grad_in_registers(const Lines<3> lines, bool log) {
  const Gradient<T> gradient{log};
  for_lines<size>(lines, [&](const auto& part) {
    T g[kKept / size][size], y[kKept / size][size], sum = 0;
    part.for_kept([&](int64_t i, int r) {
      part.template load<E>(g[r], 1, i);
      part.template load<E>(y[r], 2, i);
      for (int j = 0; j < size; ++j) sum += gradient.term(g[r][j], y[r][j]);
    });
    sum = part.merge(sum, Plus());
    part.for_kept([&](int64_t i, int r) {
      for (int j = 0; j < size; ++j) g[r][j] = gradient.result(g[r][j], y[r][j], sum);
      part.template store<E>(g[r], 0, i);
    });
  });
}

/// The same, each operand read for the sum and again for the gradient.
template <class T, class E, int size>
__global__ void __launch_bounds__(kMostThreads<T>) softmax_grad_in_two_reads(const Lines<3> lines, bool log) {
  const Gradient<T> gradient{log};
  for_lines<size>(lines, [&](const auto& part) {
    T g[size], y[size], sum = 0;
    const auto read = [&](int64_t i) {
      part.template load<E>(g, 1, i);
      part.template load<E>(y, 2, i);
    };
    part.for_packs([&](int64_t i) {
      read(i);
      for (int j = 0; j < size; ++j) sum += gradient.term(g[j], y[j]);
    });
    sum = part.merge(sum, Plus());
    part.for_packs([&](int64_t i) {
      read(i);
      for (int j = 0; j < size; ++j) g[j] = gradient.result(g[j], y[j], sum);
      part.template store<E>(g, 0, i);
    });
  });
}

}  // namespace mezzo::cuda
