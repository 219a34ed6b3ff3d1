// Reductions. Each block of rows is folded into partial results side by side (lanes), the lanes into one
// result per column, the blocks' results in order into the columns' results. Sums of floats leave float at
// the end of a block, so rounding errors grow with a block's few hundred rows, not with the tensor. Columns
// of one block that are arrays, lines, go the same way without strips and pieces, whose set-up would cost
// more than their arithmetic.
#include <limits>
#include <type_traits>
#include <vector>

#include "tensor/cpu/columns.h"
#include "tensor/cpu/kernel_families.h"

namespace mezzo::cpu {
namespace {

// An op over values of T (double, float or int64): Acc is what a lane holds, Total what blocks are merged in.
// `identity` starts both, `lift` makes an Acc of element `index` in the order of rows, `merge` joins two Accs
// or two Totals, `result` makes the output's value from the Total of `rows` elements in columns `width`
// abreast.

template <class T>
struct Fold {
  using Value = T;
  using Acc = T;
  using Total = T;
  static constexpr T identity() { return T(0); }
  static constexpr T lift(T x, int64_t) { return x; }
  static constexpr T result(T total, int64_t, int64_t) { return total; }
};

template <class T>
struct Sum : Fold<T> {
  using Total = std::conditional_t<std::is_same_v<T, float>, double, T>;
  template <class A>
  static constexpr A merge(A a, A b) {
    return a + b;
  }
  static constexpr Total result(Total total, int64_t, int64_t) { return total; }
};

template <class T>
struct Mean : Sum<T> {
  static constexpr double result(typename Sum<T>::Total total, int64_t rows, int64_t) {
    return static_cast<double>(total) / static_cast<double>(rows);
  }
};

// In Amax and Amin `b != b` brings a NaN in; a NaN in `a` stays, since no comparison with it holds.
template <class T>
struct Amax : Fold<T> {
  using Limits = std::numeric_limits<T>;
  static constexpr T identity() { return Limits::has_infinity ? -Limits::infinity() : Limits::lowest(); }
  static constexpr T merge(T a, T b) { return ((b > a) | (b != b)) ? b : a; }
};

template <class T>
struct Amin : Fold<T> {
  using Limits = std::numeric_limits<T>;
  static constexpr T identity() { return Limits::has_infinity ? Limits::infinity() : Limits::max(); }
  static constexpr T merge(T a, T b) { return ((b < a) | (b != b)) ? b : a; }
};

template <class T>
struct Any : Fold<T> {
  static constexpr T merge(T a, T b) { return b != T(0) ? T(1) : a; }
};

template <class T>
struct All : Fold<T> {
  static constexpr T identity() { return T(1); }
  static constexpr T merge(T a, T b) { return b == T(0) ? T(0) : a; }
};

/// Best is Amax or Amin.
template <class T, template <class> class Best>
struct Position : Fold<T> {
  struct Acc {
    T value;
    int64_t index;
  };
  using Total = Acc;
  static constexpr Acc identity() { return {Best<T>::identity(), std::numeric_limits<int64_t>::max()}; }
  static constexpr Acc lift(T x, int64_t index) { return {x, index}; }
  static constexpr Acc merge(Acc a, Acc b) {
    const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
    const bool equal = a.value == b.value || (a_nan && b_nan);
    const bool second = equal ? b.index < a.index : !a_nan && Best<T>::merge(a.value, b.value) != a.value;
    return second ? b : a;
  }
  static constexpr int64_t result(Total total, int64_t, int64_t width) { return total.index / width; }
};

template <class T>
struct Argmax : Position<T, Amax> {};
template <class T>
struct Argmin : Position<T, Amin> {};

// --- lines

constexpr int64_t kLanes = 64;        ///< of a line: enough vectors for additions not to wait for one another
constexpr int64_t kLineBlock = 4096;  ///< elements of a line that are folded in Op::Acc

/// Merges lane[0, lanes) into lane[0]; each step's size is a constant, so that it takes a few vectors.
template <class Op, int64_t lanes = kLanes>
void fold(typename Op::Acc* lane) {
  if constexpr (lanes > 1) {
#pragma omp simd
    for (int64_t j = 0; j < lanes / 2; ++j) lane[j] = Op::merge(lane[j], lane[j + lanes / 2]);
    fold<Op, lanes / 2>(lane);
  }
}

/// Merges n elements, numbers `index` and on of their line, into the lanes.
template <class Op>
void meet(typename Op::Acc* lane, const typename Op::Value* x, int64_t n, int64_t index) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
#pragma omp simd
    for (int64_t j = 0; j < kLanes; ++j) lane[j] = Op::merge(lane[j], Op::lift(x[i + j], index + i + j));
  }
#pragma omp simd
  for (int64_t j = 0; j < n - i; ++j) lane[j] = Op::merge(lane[j], Op::lift(x[i + j], index + i + j));
}

template <class Op>
typename Op::Total reduce_line(const View& in, int64_t offset, int64_t stride, int64_t n) {
  using T = typename Op::Value;
  const T* memory = memory_run<T>(in, offset, stride, n);
  typename Op::Total total = Op::identity();
  for (int64_t begin = 0; begin < n; begin += kLineBlock) {
    const int64_t end = std::min(n, begin + kLineBlock);
    typename Op::Acc lane[kLanes];
    std::fill_n(lane, kLanes, Op::identity());
    if (memory) {
      meet<Op>(lane, memory + begin, end - begin, begin);
    } else {
      for (int64_t i = begin; i < end; i += kChunk) {
        T x[kChunk];
        const int64_t m = std::min(kChunk, end - i);
        load_run(x, address(in, offset + i * stride), in.dtype, stride, m);
        meet<Op>(lane, x, m, i);
      }
    }
    fold<Op>(lane);
    total = Op::merge(total, typename Op::Total(lane[0]));
  }
  return total;
}

template <class Op>
void reduce_lines(const Columns& columns, const View& out, const View& in) {
  columns.for_lines([&](const Columns::Offsets& at, int64_t n) {
    decltype(Op::result(Op::identity(), 1, 1)) results[kChunk];
    for (int64_t i = 0; i < n; ++i) {
      const int64_t line = at[0] + i * columns.column_stride(0);
      results[i] =
          Op::result(reduce_line<Op>(in, line, columns.stride(0), columns.rows()), columns.rows(), 1);
    }
    store_run(address(out, at[1]), out.dtype, columns.column_stride(1), results, n);
  });
}

// --- strips

/// Folds one block of a strip into totals[0, width).
template <class Op>
void reduce_block(const Columns& columns, int64_t strip, int64_t block, const View& in,
                  typename Op::Total* totals) {
  using T = typename Op::Value;
  using Acc = typename Op::Acc;
  const int64_t width = columns.width(strip), lanes = columns.lanes(strip), stride = columns.stride(0);
  Acc lane[kChunk];
  std::fill_n(lane, lanes, Op::identity());
  columns.for_pieces(strip, block, [&](const Columns::Offsets& at, int64_t n, int64_t row) {
    T buffer[kChunk];
    const T* x = read_run(in, at[0], stride, n, buffer);
    for (int64_t i = 0; i < n; i += lanes) {
      const int64_t m = std::min(lanes, n - i), index = row * width + i;
#pragma omp simd
      for (int64_t j = 0; j < m; ++j) lane[j] = Op::merge(lane[j], Op::lift(x[i + j], index + j));
    }
  });
  fold_lanes(lane, lanes, width, [](Acc a, Acc b) { return Op::merge(a, b); });
  std::copy_n(lane, width, totals);
}

/// Writes the results of a strip to `out`.
template <class Op>
void store_results(const Columns& columns, int64_t strip, const typename Op::Total* totals, const View& out) {
  const int64_t width = columns.width(strip);
  decltype(Op::result(*totals, 1, 1)) results[kChunk];
  for (int64_t j = 0; j < width; ++j) results[j] = Op::result(totals[j], columns.rows(), width);
  store_run(address(out, columns.offsets(strip)[1]), out.dtype, columns.column_stride(1), results, width);
}

template <class Op>
void reduce_as(const View& out, const View& in) {
  using Total = typename Op::Total;
  View result{out.data, out.dtype, in.shape, out.strides};
  for (int d = 0; d < in.shape.dim(); ++d) {
    if (out.shape[d] == 1) result.strides[d] = 0;
  }
  const std::array<const View*, 2> views{&in, &result};
  const Columns columns(views, 1, [&](int d) { return out.shape[d] == 1; });
  const int64_t all = columns.columns(), blocks = columns.blocks();
  if (blocks == 1 && columns.are_lines()) return reduce_lines<Op>(columns, out, in);
  if (blocks == 1) {
    columns.for_blocks([&](int64_t strip, int64_t block) {
      Total totals[kChunk];
      reduce_block<Op>(columns, strip, block, in, totals);
      store_results<Op>(columns, strip, totals, out);
    });
    return;
  }
  std::vector<Total> partial(static_cast<size_t>(all * blocks));
  columns.for_blocks([&](int64_t strip, int64_t block) {
    reduce_block<Op>(columns, strip, block, in, partial.data() + block * all + columns.first_column(strip));
  });
  parallel_for(columns.strips(), 1 + kParallelElements / (blocks * kChunk), [&](int64_t begin, int64_t end) {
    for (int64_t strip = begin; strip < end; ++strip) {
      Total* totals = partial.data() + columns.first_column(strip);
      const int64_t width = columns.width(strip);
      for (int64_t block = 1; block < blocks; ++block) {
        for (int64_t j = 0; j < width; ++j) totals[j] = Op::merge(totals[j], totals[block * all + j]);
      }
      store_results<Op>(columns, strip, totals, out);
    }
  });
}

template <template <class> class Op>
void reduce(const View& out, const View& in) {
  if (out.numel() == 0) return;
  if (in.dtype == DType::float64)
    reduce_as<Op<double>>(out, in);
  else if (is_floating(in.dtype))
    reduce_as<Op<float>>(out, in);
  else
    reduce_as<Op<int64_t>>(out, in);
}

}  // namespace

void add_reduce(Kernels& table) {
  const auto set = [&](Reduction reduction, auto kernel) {
    table.reduce[static_cast<size_t>(reduction)] = kernel;
  };
  set(Reduction::sum, reduce<Sum>);
  set(Reduction::mean, reduce<Mean>);
  set(Reduction::amax, reduce<Amax>);
  set(Reduction::amin, reduce<Amin>);
  set(Reduction::any, reduce<Any>);
  set(Reduction::all, reduce<All>);
  set(Reduction::argmax, reduce<Argmax>);
  set(Reduction::argmin, reduce<Argmin>);
}

}  // namespace mezzo::cpu
