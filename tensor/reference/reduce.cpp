// Reductions: for each element of the result, a loop over the elements that it stands for.
#include <functional>

#include "tensor/reference/element.h"
#include "tensor/reference/kernel_families.h"

namespace mezzo::reference {
namespace {

/// Each element of `out` is finish(acc, n) after step(acc, x, i) for the n elements x that it stands for, in
/// row-major order, with `acc` beginning as `start`.
template <class T, class Acc, class Step, class Finish>
void reduce(const View& out, const View& in, const Acc start, Step step, Finish finish) {
  // Where those elements lie: the reduced dimensions, from the place that the kept ones say.
  const View kept{in.data, in.dtype, out.shape, in.strides};
  View reduced = in;
  for (int d = 0; d < in.shape.dim(); ++d) {
    if (out.shape[d] != 1) reduced.shape[d] = 1;
  }
  const int64_t n = reduced.numel();
  for (int64_t o = 0; o < out.numel(); ++o) {
    Acc acc = start;
    for (int64_t i = 0; i < n; ++i) step(acc, load<T>(in, offset_of(kept, o) + offset_of(reduced, i)), i);
    store(out, offset_of(out, o), finish(acc, n));
  }
}

constexpr auto result = [](auto acc, int64_t) { return acc; };

/// Sums and extremes are taken in double or in int64, whatever the dtype.
template <class F>
void with_type_of(const View& in, F f) {
  if (is_floating(in.dtype))
    f(double{});
  else
    f(int64_t{});
}

void sum(const View& out, const View& in) {
  with_type_of(in, [&]<class T>(T zero) {
    reduce<T>(
        out, in, zero, [](T& sum, T x, int64_t) { sum += x; }, result);
  });
}

void mean(const View& out, const View& in) {
  const auto add = [](double& sum, double x, int64_t) { sum += x; };
  reduce<double>(out, in, 0.0, add, [](double sum, int64_t n) { return sum / static_cast<double>(n); });
}

void any(const View& out, const View& in) {
  reduce<bool>(
      out, in, false, [](bool& any, bool x, int64_t) { any |= x; }, result);
}

void all(const View& out, const View& in) {
  reduce<bool>(
      out, in, true, [](bool& all, bool x, int64_t) { all &= x; }, result);
}

template <class T>
struct Best {
  T value = 0;
  int64_t position = -1;
};

/// The first element that no other is better than, NaN before all numbers, as what `finish` makes of it.
template <class Better, class Finish>
void select(const View& out, const View& in, Better better, Finish finish) {
  with_type_of(in, [&]<class T>(T) {
    const auto step = [&](Best<T>& best, T x, int64_t i) {
      const bool nan = x != x, best_nan = best.value != best.value;
      if (best.position < 0 || (!best_nan && (nan || better(x, best.value)))) best = {x, i};
    };
    reduce<T>(out, in, Best<T>{}, step, finish);
  });
}

constexpr auto value = [](auto best, int64_t) { return best.value; };
constexpr auto position = [](auto best, int64_t) { return best.position; };

void amax(const View& out, const View& in) { select(out, in, std::greater(), value); }
void amin(const View& out, const View& in) { select(out, in, std::less(), value); }
void argmax(const View& out, const View& in) { select(out, in, std::greater(), position); }
void argmin(const View& out, const View& in) { select(out, in, std::less(), position); }

}  // namespace

void add_reduce(Kernels& table) { table.reduce = {sum, mean, amax, amin, any, all, argmax, argmin}; }

}  // namespace mezzo::reference
