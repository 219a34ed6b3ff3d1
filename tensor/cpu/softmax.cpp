// Softmax along one dimension. Over a line that stays in the cache in three passes: largest, sum of
// exponentials, result. Over a strip of lines side by side in two readings of memory: largest and sum,
// result. Its gradient takes two. Arithmetic is in T, float or double; chunks of a line and blocks of a strip
// are added up in double.
#include <functional>
#include <limits>

#include "tensor/cpu/columns.h"
#include "tensor/cpu/kernel_families.h"
#include "tensor/cpu/lines.h"
#include "tensor/cpu/scratch.h"
#include "tensor/cpu/stream.h"

namespace mezzo::cpu {
namespace {

/// The lines along dim are the columns.
Columns lines_along(std::span<const View* const> views, int dim) {
  return Columns(views, static_cast<int>(views.size()), [dim](int d) { return d == dim; });
}

// --- lines

/// What the last pass needs, the exponentials or for the logarithm the differences, waits in y.
template <class T>
void softmax_line(T* y, const T* x, int64_t n, bool log) {
  using V = Vec<T>;
  const T largest = largest_of(x, n);
  const T sum = sum_of<T>(n, [&](int64_t i, int64_t m) {
    const V shifted = V::load(x + i, m, -std::numeric_limits<T>::infinity()) - V(largest);
    const V e = exp(shifted);
    (log ? shifted : e).store(y + i, m);
    return e;
  });
  const auto waiting = [&](int64_t i, int64_t m) { return V::load(y + i, m, 0); };
  const V log_sum(std::log(sum)), factor(T(1) / sum);
  if (log)
    fill_line(y, n, [&](int64_t i, int64_t m) { return waiting(i, m) - log_sum; });
  else
    fill_line(y, n, [&](int64_t i, int64_t m) { return waiting(i, m) * factor; });
}

/// y: the result of softmax_line, dy its gradient.
template <class T>
void softmax_grad_line(T* dx, const T* dy, const T* y, int64_t n, bool log) {
  using V = Vec<T>;
  const auto result = [&](int64_t i, int64_t m) { return V::load(y + i, m, 0); };
  const auto grad = [&](int64_t i, int64_t m) { return V::load(dy + i, m, 0); };
  if (log) {
    const V sum(sum_of<T>(n, grad));
    fill_line(dx, n, [&](int64_t i, int64_t m) { return grad(i, m) - exp(result(i, m)) * sum; });
  } else {
    const V sum(sum_of<T>(n, [&](int64_t i, int64_t m) { return grad(i, m) * result(i, m); }));
    fill_line(dx, n, [&](int64_t i, int64_t m) { return result(i, m) * (grad(i, m) - sum); });
  }
}

/// Lines of a view as arrays of T: its memory, or a copy of one line at a time.
template <class T>
class LineArray {
 public:
  /// v: the number of the view among those of the columns.
  LineArray(const View& view, const Columns& columns, int v)
      : view_(view),
        n_(columns.rows()),
        stride_(columns.stride(v)),
        copy_(memory_run<T>(view, 0, stride_, n_) ? 0 : static_cast<size_t>(n_) * sizeof(T)) {}

  const T* read(int64_t offset) const { return read_run(view_, offset, stride_, n_, copy_.template as<T>()); }
  /// Where to put a line before write_back.
  T* write(int64_t offset) const { return write_run(view_, offset, stride_, n_, copy_.template as<T>()); }
  void write_back(int64_t offset, const T* line) const { cpu::write_back(view_, offset, stride_, n_, line); }

 private:
  const View& view_;
  int64_t n_, stride_;
  Scratch copy_;
};

template <class T>
void softmax_lines(const Columns& columns, const View& out, const View& in, bool log) {
  columns.for_lines([&](const Columns::Offsets& at, int64_t n) {
    const LineArray<T> x(in, columns, 0), y(out, columns, 1);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t to = at[1] + i * columns.column_stride(1);
      T* line = y.write(to);
      softmax_line(line, x.read(at[0] + i * columns.column_stride(0)), columns.rows(), log);
      y.write_back(to, line);
    }
  });
}

template <class T>
void softmax_grad_lines(const Columns& columns, const View& grad_in, const View& grad, const View& result,
                        bool log) {
  columns.for_lines([&](const Columns::Offsets& at, int64_t n) {
    const LineArray<T> y(result, columns, 0), dy(grad, columns, 1), dx(grad_in, columns, 2);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t to = at[2] + i * columns.column_stride(2);
      T* line = dx.write(to);
      softmax_grad_line(line, dy.read(at[1] + i * columns.column_stride(1)),
                        y.read(at[0] + i * columns.column_stride(0)), columns.rows(), log);
      dx.write_back(to, line);
    }
  });
}

// --- strips

/// values[i] = e^values[i].
template <class T>
void exponentiate(T* values, int64_t n) {
  fill_line(values, n, [&](int64_t i, int64_t m) { return exp(Vec<T>::load(values + i, m, 0)); });
}

/// f(offsets, n) for all pieces of a strip in order.
template <class F>
void for_strip(const Columns& columns, int64_t strip, F&& f) {
  for (int64_t block = 0; block < columns.blocks(); ++block) {
    columns.for_pieces(strip, block, [&](const Columns::Offsets& at, int64_t n, int64_t) { f(at, n); });
  }
}

/// f(i, j) for the elements i of a piece and their lanes j.
template <class F>
void for_lanes(int64_t lanes, int64_t n, F&& f) {
  for (int64_t i = 0; i < n; i += lanes) {
    const int64_t m = std::min(lanes, n - i);
#pragma omp simd
    for (int64_t j = 0; j < m; ++j) f(i + j, j);
  }
}

/// f(i, j, m) for vectors of m elements i of a piece, whose lanes are those from j on.
template <class T, class F>
void for_lane_vectors(int64_t lanes, int64_t n, F&& f) {
  for (int64_t i = 0; i < n; i += lanes)
    for_vectors<T>(0, std::min(lanes, n - i), [&](int, int64_t j, int64_t m) { f(i + j, j, m); });
}

/// How far ahead of an element of a piece to fetch, in elements: some rows, since those of a strip lie in
/// pages of their own, where the processor does not look ahead. 0 for a piece that was copied.
int64_t distance_ahead(const Columns& columns, int v, bool copied) {
  constexpr int64_t kRows = 4;
  return copied ? 0 : kRows * columns.row_stride(v);
}

/// largest[j]: of the column that lane j belongs to, NaN if that holds one; sum[j]: of e^(x - largest[j])
/// over that column. In one reading of memory: what has been added up is scaled down when a larger element
/// comes, which is seldom.
template <class T>
void measure(const Columns& columns, int64_t strip, const View& in, T* largest, T* sum) {
  using V = Vec<T>;
  constexpr T lowest = -std::numeric_limits<T>::infinity();
  const int64_t width = columns.width(strip), lanes = columns.lanes(strip);
  const auto larger = [](T a, T b) { return ((b > a) | (b != b)) ? b : a; };
  // What exponents are counted from; as long as a lane has seen nothing above -infinity, that is not it.
  T shift[kChunk], factor[kChunk];
  double total[kChunk];
  std::fill_n(largest, lanes, lowest);
  std::fill_n(shift, lanes, T(0));
  std::fill_n(total, lanes, 0.0);
  const auto raise_to = [&](const T* x, int64_t n) {
    for_lanes(lanes, n, [&](int64_t i, int64_t j) { largest[j] = larger(largest[j], x[i]); });
    for (int64_t j = 0; j < lanes; ++j) {
      const T next = largest[j] == lowest ? T(0) : largest[j];
      factor[j] = shift[j] - next;
      shift[j] = next;
    }
    exponentiate(factor, lanes);
    for (int64_t j = 0; j < lanes; ++j) {
      sum[j] = sum[j] == 0 ? T(0) : sum[j] * factor[j];
      total[j] = total[j] == 0 ? 0 : total[j] * static_cast<double>(factor[j]);
    }
  };
  for (int64_t block = 0; block < columns.blocks(); ++block) {
    std::fill_n(sum, lanes, T(0));
    columns.for_pieces(strip, block, [&](const Columns::Offsets& at, int64_t n, int64_t) {
      T buffer[kChunk];
      const T* x = read_run(in, at[0], columns.stride(0), n, buffer);
      const int64_t ahead = distance_ahead(columns, 0, x == buffer);
      int rises = 0;
      for (int64_t i = 0; i < n; i += lanes) {
        const int64_t m = std::min(lanes, n - i);
#pragma omp simd reduction(| : rises)
        for (int64_t j = 0; j < m; ++j) rises |= !(x[i + j] <= largest[j]);
      }
      if (rises) raise_to(x, n);
      for_lane_vectors<T>(lanes, n, [&](int64_t i, int64_t j, int64_t m) {
        __builtin_prefetch(x + i + ahead);
        const V e = exp(V::load(x + i, m, 0) - V::load(shift + j, m, 0));
        (V::load(sum + j, m, 0) + e).store(sum + j, m);
      });
    });
    for (int64_t j = 0; j < lanes; ++j) total[j] += static_cast<double>(sum[j]);
  }
  fold_lanes(largest, lanes, width, larger);
  repeat_lanes(largest, lanes, width);
  for (int64_t j = 0; j < lanes; ++j)
    total[j] = largest[j] == lowest ? 0 : total[j] * std::exp(static_cast<double>(shift[j] - largest[j]));
  fold_lanes(total, lanes, width, std::plus<double>());
  for (int64_t j = 0; j < width; ++j) sum[j] = static_cast<T>(total[j]);
  repeat_lanes(sum, lanes, width);
}

/// sums[j]: of the column that lane j belongs to, over the terms that terms(offsets, n, buffer) returns for a
/// piece.
template <class T, class Terms>
void add_up(const Columns& columns, int64_t strip, T* sums, Terms&& terms) {
  const int64_t width = columns.width(strip), lanes = columns.lanes(strip);
  double total[kChunk];
  std::fill_n(total, width, 0.0);
  for (int64_t block = 0; block < columns.blocks(); ++block) {
    std::fill_n(sums, lanes, T(0));
    columns.for_pieces(strip, block, [&](const Columns::Offsets& at, int64_t n, int64_t) {
      T buffer[kChunk];
      const T* term = terms(at, n, buffer);
      for_lanes(lanes, n, [&](int64_t i, int64_t j) { sums[j] += term[i]; });
    });
    fold_lanes(sums, lanes, width, std::plus<T>());
    for (int64_t j = 0; j < width; ++j) total[j] += static_cast<double>(sums[j]);
  }
  for (int64_t j = 0; j < width; ++j) sums[j] = static_cast<T>(total[j]);
  repeat_lanes(sums, lanes, width);
}

template <class T>
void softmax_as(const View& out, const View& in, int dim, bool log) {
  using V = Vec<T>;
  const std::array<const View*, 2> views{&in, &out};
  const Columns columns = lines_along(views, dim);
  if (columns.are_lines()) return softmax_lines<T>(columns, out, in, log);
  const bool streamed = is_streamed(out) && out.dtype == dtype_of<T> && columns.stride(1) == 1;
  columns.for_strips([&](int64_t strip) {
    const int64_t lanes = columns.lanes(strip);
    T largest[kChunk], sum[kChunk];
    measure(columns, strip, in, largest, sum);
    for (int64_t j = 0; j < lanes; ++j) sum[j] = log ? std::log(sum[j]) : T(1) / sum[j];
    for_strip(columns, strip, [&](const Columns::Offsets& at, int64_t n) {
      T x_buffer[kChunk], buffer[kChunk];
      const T* x = read_run(in, at[0], columns.stride(0), n, x_buffer);
      T* y = streamed ? buffer : write_run(out, at[1], columns.stride(1), n, buffer);
      const int64_t ahead = distance_ahead(columns, 0, x == x_buffer),
                    ahead_out = distance_ahead(columns, 1, y == buffer);
      for_lane_vectors<T>(lanes, n, [&](int64_t i, int64_t j, int64_t m) {
        __builtin_prefetch(x + i + ahead);
        __builtin_prefetch(y + i + ahead_out, 1);
        const V shifted = V::load(x + i, m, 0) - V::load(largest + j, m, 0), scale = V::load(sum + j, m, 0);
        (log ? shifted - scale : exp(shifted) * scale).store(y + i, m);
      });
      if (streamed)
        stream(address(out, at[1]), y, static_cast<size_t>(n) * sizeof(T));
      else
        write_back(out, at[1], columns.stride(1), n, y);
    });
    if (streamed) finish_streams();
  });
}

template <class T>
void softmax_grad_as(const View& grad_in, const View& grad, const View& result, int dim, bool log) {
  const std::array<const View*, 3> views{&result, &grad, &grad_in};
  const Columns columns = lines_along(views, dim);
  if (columns.are_lines()) return softmax_grad_lines<T>(columns, grad_in, grad, result, log);
  columns.for_strips([&](int64_t strip) {
    const int64_t lanes = columns.lanes(strip);
    T sum[kChunk];
    const auto read = [&](int v, const Columns::Offsets& at, int64_t n, T* buffer) {
      return read_run(*views[static_cast<size_t>(v)], at[static_cast<size_t>(v)], columns.stride(v), n,
                      buffer);
    };
    add_up(columns, strip, sum, [&](const Columns::Offsets& at, int64_t n, T* term) -> const T* {
      if (log) return read(1, at, n, term);
      T y_buffer[kChunk], g_buffer[kChunk];
      const T *y = read(0, at, n, y_buffer), *g = read(1, at, n, g_buffer);
      for (int64_t i = 0; i < n; ++i) term[i] = g[i] * y[i];
      return term;
    });
    for_strip(columns, strip, [&](const Columns::Offsets& at, int64_t n) {
      T y_buffer[kChunk], g_buffer[kChunk], buffer[kChunk];
      const T *y = read(0, at, n, y_buffer), *g = read(1, at, n, g_buffer);
      T* dx = write_run(grad_in, at[2], columns.stride(2), n, buffer);
      if (log) {
        std::copy_n(y, n, dx);
        exponentiate(dx, n);
        for_lanes(lanes, n, [&](int64_t i, int64_t j) { dx[i] = g[i] - dx[i] * sum[j]; });
      } else {
        for_lanes(lanes, n, [&](int64_t i, int64_t j) { dx[i] = y[i] * (g[i] - sum[j]); });
      }
      write_back(grad_in, at[2], columns.stride(2), n, dx);
    });
  });
}

void softmax(const View& out, const View& in, int dim, bool log) {
  if (out.numel() == 0) return;
  (in.dtype == DType::float64 ? softmax_as<double> : softmax_as<float>)(out, in, dim, log);
}

void softmax_grad(const View& grad_in, const View& g, const View& y, int dim, bool log) {
  if (grad_in.numel() == 0) return;
  (y.dtype == DType::float64 ? softmax_grad_as<double> : softmax_grad_as<float>)(grad_in, g, y, dim, log);
}

}  // namespace

void add_softmax(Kernels& table) {
  table.softmax = softmax;
  table.softmax_grad = softmax_grad;
}

}  // namespace mezzo::cpu
