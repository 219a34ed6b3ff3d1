// Optimizer steps: one pass over a parameter and its state; and the part of loss scaling that goes over
// gradients. Arithmetic is in T: double for float64, else float.
#include <array>
#include <atomic>
#include <cmath>

#include "tensor/cpu/kernel_families.h"
#include "tensor/cpu/parallel.h"
#include "tensor/cpu/runs.h"
#include "tensor/cpu/strided_loop.h"

namespace mezzo::cpu {
namespace {

/// What gradients are to be multiplied by.
float inverse_of(const View& scale) { return scale.given() ? inverse(*scale.as<float>()) : 1.0f; }

template <class T>
void multiply(T* run, int64_t n, T factor) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) run[i] *= factor;
}

/// Calls f(run, n) with run[v] the n <= kChunk elements of view v as T, for all elements in parallel; then
/// writes back what may have changed. View 1 is the gradient: unscaled first, or else left as it is. run[v]
/// is null for a view that is not given.
template <class T, size_t views, class F>
void update(const std::array<const View*, views>& all, const View& loss_scale, F&& f) {
  constexpr size_t grad = 1;
  const StridedLoop loop(all);
  const T factor = inverse_of(loss_scale);
  parallel_for(loop.size(), kParallelElements, [&](int64_t begin, int64_t end) {
    T buffer[views][kChunk];
    loop.for_runs(begin, end, [&](StridedLoop::Offsets at, int64_t length) {
      for (int64_t n; length > 0; length -= n) {
        n = std::min(length, kChunk);
        std::array<T*, views> run{};
        for (size_t v = 0; v < views; ++v) {
          if (all[v]->given())
            run[v] = read_run(*all[v], at[v], loop.stride(static_cast<int>(v)), n, buffer[v]);
        }
        if (factor != 1) multiply(run[grad], n, factor);
        f(run, n);
        for (size_t v = 0; v < views; ++v) {
          const int64_t stride = loop.stride(static_cast<int>(v));
          if (all[v]->given() && (v != grad || factor != 1)) write_back(*all[v], at[v], stride, n, run[v]);
          at[v] += n * stride;
        }
      }
    });
  });
}

template <class T, bool amsgrad>
void adam_as(const AdamTensors& tensors, const AdamArgs& args) {
  const auto sign = static_cast<T>(args.maximize ? -1 : 1), weight_decay = static_cast<T>(args.weight_decay);
  const auto decay = static_cast<T>(args.decay), step_size = static_cast<T>(args.step_size);
  const auto beta2 = static_cast<T>(args.beta2), eps = static_cast<T>(args.eps);
  const auto rest1 = static_cast<T>(1 - args.beta1), rest2 = static_cast<T>(1 - args.beta2);
  const auto bias2_sqrt = static_cast<T>(args.bias2_sqrt);
  const std::array<const View*, 5> views{&tensors.param, &tensors.grad, &tensors.exp_avg, &tensors.exp_avg_sq,
                                         &tensors.max_exp_avg_sq};
  update<T>(views, args.loss_scale, [&](const std::array<T*, 5>& run, int64_t n) {
    T *param = run[0], *grad = run[1], *exp_avg = run[2], *exp_avg_sq = run[3], *max_exp_avg_sq = run[4];
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      const T p = param[i] * decay, g = sign * grad[i] + weight_decay * p;
      const T m = exp_avg[i] + rest1 * (g - exp_avg[i]);
      const T v = beta2 * exp_avg_sq[i] + rest2 * g * g;
      exp_avg[i] = m;
      exp_avg_sq[i] = v;
      T divisor = v;
      // As torch.maximum: a NaN on either side is the result.
      if constexpr (amsgrad) {
        const T most = max_exp_avg_sq[i];
        max_exp_avg_sq[i] = divisor = ((v > most) | (v != v)) ? v : most;
      }
      param[i] = p - step_size * m / (std::sqrt(divisor) / bias2_sqrt + eps);
    }
  });
}

template <class T, bool with_momentum>
void sgd_as(const SgdTensors& tensors, const SgdArgs& args) {
  const auto sign = static_cast<T>(args.maximize ? -1 : 1), weight_decay = static_cast<T>(args.weight_decay);
  const auto lr = static_cast<T>(args.lr), momentum = static_cast<T>(args.momentum);
  const auto fresh = static_cast<T>(1 - args.dampening);
  const bool first = args.first, nesterov = args.nesterov;
  const std::array<const View*, 3> views{&tensors.param, &tensors.grad, &tensors.momentum_buffer};
  update<T>(views, args.loss_scale, [&](const std::array<T*, 3>& run, int64_t n) {
    T *param = run[0], *grad = run[1], *buffer = run[2];
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      T g = sign * grad[i] + weight_decay * param[i];
      if constexpr (with_momentum) {
        const T b = first ? g : momentum * buffer[i] + fresh * g;
        buffer[i] = b;
        g = nesterov ? g + momentum * b : b;
      }
      param[i] -= lr * g;
    }
  });
}

template <class T>
void adam_in(const AdamTensors& tensors, const AdamArgs& args) {
  (tensors.max_exp_avg_sq.given() ? adam_as<T, true> : adam_as<T, false>)(tensors, args);
}

template <class T>
void sgd_in(const SgdTensors& tensors, const SgdArgs& args) {
  (tensors.momentum_buffer.given() ? sgd_as<T, true> : sgd_as<T, false>)(tensors, args);
}

void adam(const AdamTensors& tensors, const AdamArgs& args) {
  (tensors.param.dtype == DType::float64 ? adam_in<double> : adam_in<float>)(tensors, args);
}

void sgd(const SgdTensors& tensors, const SgdArgs& args) {
  (tensors.param.dtype == DType::float64 ? sgd_in<double> : sgd_in<float>)(tensors, args);
}

/// The part [begin, end) of all elements of one gradient: multiplied by `factor` if it is to be written.
/// Returns whether one of the products is not finite in the gradient's dtype.
template <class T>
bool unscale_part(const View& grad, const StridedLoop& loop, int64_t begin, int64_t end, T factor,
                  bool write) {
  const auto limit = static_cast<T>(largest_of(grad.dtype));
  const int64_t stride = loop.stride(0);
  int found = 0;
  T buffer[kChunk];
  loop.for_runs(begin, end, [&](StridedLoop::Offsets at, int64_t length) {
    for (int64_t n; length > 0; length -= n, at[0] += n * stride) {
      n = std::min(length, kChunk);
      T* run = read_run(grad, at[0], stride, n, buffer);
#pragma omp simd reduction(| : found)
      for (int64_t i = 0; i < n; ++i) found |= !(std::abs(run[i] * factor) <= limit);
      if (!write || factor == 1) continue;
      multiply(run, n, factor);
      write_back(grad, at[0], stride, n, run);
    }
  });
  return found;
}

/// Threads share the elements of all gradients together: many of them are small.
void unscale(std::span<const View> grads, const View& scale, const View& found_inf, bool write) {
  const float factor = inverse_of(scale);
  int64_t total = 0;
  for (const View& grad : grads) total += grad.numel();
  std::atomic<bool> found = false;
  parallel_for(total, kParallelElements, [&](int64_t begin, int64_t end) {
    for (const View& grad : grads) {
      const int64_t size = grad.numel(), from = std::max<int64_t>(begin, 0), to = std::min(end, size);
      if (from < to) {
        const View* const view[] = {&grad};
        const StridedLoop loop(view);
        const bool bad = grad.dtype == DType::float64
                             ? unscale_part<double>(grad, loop, from, to, factor, write)
                             : unscale_part<float>(grad, loop, from, to, factor, write);
        if (bad) found.store(true, std::memory_order_relaxed);
      }
      begin -= size;
      end -= size;
    }
  });
  if (found) *found_inf.as<float>() = 1;
}

void update_scale(const View& scale, const View& tracker, const View& found_inf, const ScaleRule& rule) {
  const ScaleState updated =
      next({*scale.as<float>(), *tracker.as<int32_t>()}, *found_inf.as<float>() != 0, rule);
  *scale.as<float>() = updated.scale;
  *tracker.as<int32_t>() = updated.tracker;
}

}  // namespace

void add_optimizers(Kernels& table) {
  table.adam = adam;
  table.sgd = sgd;
  table.unscale = unscale;
  table.update_scale = update_scale;
}

}  // namespace mezzo::cpu
