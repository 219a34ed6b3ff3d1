// Optimizer steps: one pass over parameters and their state; and the part of loss scaling that goes over
// gradients. Arithmetic is in T: double for float64, else float.
#include <array>
#include <atomic>
#include <cmath>
#include <functional>
#include <type_traits>

#include "tensor/cpu/kernel_families.h"
#include "tensor/cpu/many.h"
#include "tensor/pool.h"

namespace mezzo::cpu {
namespace {

/// What gradients are to be multiplied by.
float inverse_of(const View& scale) { return scale.given() ? inverse(*scale.as<float>()) : 1.0f; }

/// Calls f(run, n) with run[v] the n <= kChunk elements of view v as T, for the elements [begin, end); then
/// writes back what may have changed. View 0 is the parameter, and the last one its cast, written with what
/// becomes of it. View 1 is the gradient: multiplied by `factor` first, or else left as it is. run[v] is null
/// for a view that is not given.
template <class T, size_t views, class F>
void update(const std::array<const View*, views>& all, int64_t begin, int64_t end, T factor, F&& f) {
  constexpr size_t grad = 1, cast = views - 1;
  const StridedLoop loop(all);
  T buffer[views][kChunk];
  loop.for_runs(begin, end, [&](StridedLoop::Offsets at, int64_t length) {
    for (int64_t n; length > 0; length -= n) {
      n = std::min(length, kChunk);
      std::array<T*, views> run{};
      for (size_t v = 0; v < views; ++v) {
        if (all[v]->given() && v != cast)
          run[v] = read_run(*all[v], at[v], loop.stride(static_cast<int>(v)), n, buffer[v]);
      }
      if (factor != 1) multiply(run[grad], n, factor);
      f(run, n);
      for (size_t v = 0; v < views; ++v) {
        const int64_t stride = loop.stride(static_cast<int>(v));
        if (all[v]->given() && (v != grad || factor != 1))
          write_back(*all[v], at[v], stride, n, run[v == cast ? 0 : v]);
        at[v] += n * stride;
      }
    }
  });
}

/// Whether the step is to change nothing.
bool is_skipped(const StepState& state) {
  return state.found_inf.given() && *state.found_inf.as<float>() != 0;
}

/// What a parameter's number of steps makes of the options.
struct AdamNumbers {
  double step_size, bias2_sqrt;
};

/// `decays`: a weight decay that is not 0 has a part in the gradient; 0 times an infinite parameter would be
/// NaN.
template <class T, bool amsgrad, bool decays>
void adam_part(const AdamTensors& tensors, const AdamNumbers& numbers, const AdamArgs& args, int64_t begin,
               int64_t end) {
  const auto sign = static_cast<T>(args.maximize ? -1 : 1), weight_decay = static_cast<T>(args.weight_decay);
  const auto decay = static_cast<T>(args.decoupled ? 1 - *args.state.lr.as<double>() * args.weight_decay : 1);
  const auto step_size = static_cast<T>(numbers.step_size);
  const auto beta2 = static_cast<T>(args.beta2), eps = static_cast<T>(args.eps);
  const auto rest1 = static_cast<T>(1 - args.beta1), rest2 = static_cast<T>(1 - args.beta2);
  const auto bias2_sqrt = static_cast<T>(numbers.bias2_sqrt);
  const T factor = inverse_of(args.state.loss_scale);
  const std::array<const View*, 6> views{&tensors.param,      &tensors.grad,           &tensors.exp_avg,
                                         &tensors.exp_avg_sq, &tensors.max_exp_avg_sq, &tensors.cast};
  update<T>(views, begin, end, factor, [&](const std::array<T*, 6>& run, int64_t n) {
    T *param = run[0], *grad = run[1], *exp_avg = run[2], *exp_avg_sq = run[3], *max_exp_avg_sq = run[4];
    if (decay != 1) multiply(param, n, decay);
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      const T p = param[i], g = decays ? sign * grad[i] + weight_decay * p : sign * grad[i];
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

template <class T, bool with_momentum, bool decays>
void sgd_part(const SgdTensors& tensors, bool first, const SgdArgs& args, int64_t begin, int64_t end) {
  const auto sign = static_cast<T>(args.maximize ? -1 : 1), weight_decay = static_cast<T>(args.weight_decay);
  const auto lr = static_cast<T>(*args.state.lr.as<double>()), momentum = static_cast<T>(args.momentum);
  const auto fresh = static_cast<T>(1 - args.dampening);
  const bool nesterov = args.nesterov;
  const T factor = inverse_of(args.state.loss_scale);
  const std::array<const View*, 4> views{&tensors.param, &tensors.grad, &tensors.momentum_buffer,
                                         &tensors.cast};
  update<T>(views, begin, end, factor, [&](const std::array<T*, 4>& run, int64_t n) {
    T *param = run[0], *grad = run[1], *buffer = run[2];
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      T g = decays ? sign * grad[i] + weight_decay * param[i] : sign * grad[i];
      if constexpr (with_momentum) {
        const T b = first ? g : momentum * buffer[i] + fresh * g;
        buffer[i] = b;
        g = nesterov ? g + momentum * b : b;
      }
      param[i] -= lr * g;
    }
  });
}

constexpr auto elements_of = [](const auto& tensors) { return tensors.param.numel(); };

/// f(constant) with std::true_type or std::false_type for `value`.
template <class F>
void with_constant(bool value, F&& f) {
  value ? f(std::true_type()) : f(std::false_type());
}

void adam(std::span<const AdamTensors> tensors, const AdamArgs& args) {
  if (is_skipped(args.state)) return;
  PooledVector<AdamNumbers> numbers;
  numbers.reserve(tensors.size());
  for (const AdamTensors& x : tensors) {
    const auto t = static_cast<double>(++*x.steps.as<int64_t>());
    numbers.push_back({*args.state.lr.as<double>() / (1 - std::pow(args.beta1, t)),
                       std::sqrt(1 - std::pow(args.beta2, t))});
  }
  for_parts(tensors, elements_of, [&](const AdamTensors& x, int64_t begin, int64_t end) {
    const AdamNumbers& own = numbers[static_cast<size_t>(&x - tensors.data())];
    with_constant(x.max_exp_avg_sq.given(), [&](auto amsgrad) {
      with_constant(args.weight_decay != 0 && !args.decoupled, [&](auto decays) {
        const bool wide = x.param.dtype == DType::float64;
        (wide ? adam_part<double, amsgrad, decays> : adam_part<float, amsgrad, decays>)(x, own, args, begin,
                                                                                        end);
      });
    });
  });
}

void sgd(std::span<const SgdTensors> tensors, const SgdArgs& args) {
  if (is_skipped(args.state)) return;
  PooledVector<char> firsts;  // of flags, one for each parameter
  firsts.reserve(tensors.size());
  for (const SgdTensors& x : tensors)
    firsts.push_back(x.momentum_buffer.given() && ++*x.steps.as<int64_t>() == 1);
  for_parts(tensors, elements_of, [&](const SgdTensors& x, int64_t begin, int64_t end) {
    const bool first = firsts[static_cast<size_t>(&x - tensors.data())] != 0;
    with_constant(x.momentum_buffer.given(), [&](auto momentum) {
      with_constant(args.weight_decay != 0, [&](auto decays) {
        const bool wide = x.param.dtype == DType::float64;
        (wide ? sgd_part<double, momentum, decays> : sgd_part<float, momentum, decays>)(x, first, args, begin,
                                                                                        end);
      });
    });
  });
}

void unscale(std::span<const View> grads, const View& scale, const View& found_inf, bool write) {
  const float factor = inverse_of(scale);
  std::atomic<bool> found = false;
  for_all_runs(grads, [&]<class T>(const View& grad, T* run, int64_t n, int64_t) {
    const auto limit = static_cast<T>(largest_of(grad.dtype)), by = static_cast<T>(factor);
    int bad = 0;
#pragma omp simd reduction(| : bad)
    for (int64_t i = 0; i < n; ++i) bad |= !(std::abs(run[i] * by) <= limit);
    if (bad) found.store(true, std::memory_order_relaxed);
    if (!write || factor == 1) return false;
    multiply(run, n, by);
    return true;
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
