// Reductions: their ops, and the choice of how threads go over the input. Sums of 16-bit and float32 values
// are in float: each thread adds up some dozens or hundreds of elements, then threads and blocks are added up
// in pairs. The kernels are in reduce.cuh.
#include "cuda/reduce.cuh"

#include <limits>
#include <optional>

#include "cuda/kernel_families.h"

namespace mezzo::cuda {
namespace {

// An op over values of T: Acc is what threads hold, `identity` begins it, `lift` makes one of element i of a
// line, `merge` joins two, `finish` puts the result in its place.

/// The sum, or the mean if the folding says so.
template <class T>
struct Sum {
  using Value = T;
  using Acc = T;
  static __device__ T identity() { return 0; }
  static __device__ T lift(T x, int64_t) { return x; }
  static __device__ T merge(T a, T b) { return a + b; }
  static __device__ void finish(const Folding& f, int64_t place, T sum) {
    using Floating = std::conditional_t<std::is_same_v<T, float>, float, double>;
    if (f.mean)
      store(f.out, f.out_dtype, place, static_cast<Floating>(sum) / static_cast<Floating>(f.count));
    else
      store(f.out, f.out_dtype, place, sum);
  }
};

/// The value that any other goes before.
template <class T, bool largest>
__device__ constexpr T worst() {
  using Limits = std::numeric_limits<T>;
  if constexpr (Limits::has_infinity)
    return largest ? -Limits::infinity() : Limits::infinity();
  else
    return largest ? Limits::lowest() : Limits::max();
}

/// A NaN comes before all numbers: `b != b` lets it in, and none replaces it, as no comparison with it holds.
template <class T, bool largest>
struct Extreme {
  using Value = T;
  using Acc = T;
  static __device__ T identity() { return worst<T, largest>(); }
  static __device__ T lift(T x, int64_t) { return x; }
  static __device__ T merge(T a, T b) { return (largest ? b > a : b < a) || b != b ? b : a; }
  static __device__ void finish(const Folding& f, int64_t place, T value) {
    store(f.out, f.out_dtype, place, value);
  }
};

/// A value, and where in its line it stands.
template <class T>
struct At {
  T value;
  int64_t position;
};

/// The first of equals, and of NaNs.
template <class T, bool largest>
struct Position {
  using Value = T;
  using Acc = At<T>;
  static __device__ Acc identity() { return {worst<T, largest>(), std::numeric_limits<int64_t>::max()}; }
  static __device__ Acc lift(T x, int64_t i) { return {x, i}; }
  static __device__ Acc merge(const Acc& a, const Acc& b) {
    const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
    if (a_nan != b_nan) return b_nan ? b : a;
    if (a.value == b.value || a_nan) return b.position < a.position ? b : a;
    return (largest ? b.value > a.value : b.value < a.value) ? b : a;
  }
  static __device__ void finish(const Folding& f, int64_t place, const Acc& best) {
    store(f.out, f.out_dtype, place, best.position);
  }
};

/// Whether all values are true, or any is.
template <bool all>
struct Test {
  using Value = bool;
  using Acc = uint32_t;  // 0 or 1: registers for bools are few
  static __device__ Acc identity() { return all; }
  static __device__ Acc lift(bool x, int64_t) { return x; }
  static __device__ Acc merge(Acc a, Acc b) { return all ? a & b : a | b; }
  static __device__ void finish(const Folding& f, int64_t place, Acc result) {
    store(f.out, f.out_dtype, place, result != 0);
  }
};

// --- how threads go over the input

/// `in` beside its result: lines, and what is in one.
Folding folding_of(const View& out, const View& in, bool mean) {
  const View starts{in.data, in.dtype, out.shape, in.strides};
  View line = in;
  for (int d = 0; d < in.shape.dim(); ++d) {
    if (out.shape[d] != 1) line.shape[d] = 1;
  }
  return {.lines = Walk<2>({&starts, &out}),
          .reduced = Walk<1>({&line}),
          .in = in.data,
          .out = out.data,
          .in_dtype = in.dtype,
          .out_dtype = out.dtype,
          .mean = mean,
          .count = line.numel(),
          .tail = 0,
          .outer_step = 0,
          .team = {1, 1, false},
          .parts = 1,
          .part_size = 0,
          .groups = 0};
}

enum class Packs { none, along, of_lines };

/// Reads 16 bytes at once where they lie together, along the lines or across.
Packs take_packs(Folding& f, bool abreast) {
  const int size = pack_size(f.in_dtype), inner = f.lines.dims - 1;
  if (!is_aligned(f.in)) return Packs::none;
  if (abreast) {
    if (!has_packs(f.lines, 0, size) || !starts_packs(f.reduced, 0, size)) return Packs::none;
    f.outer_step = f.lines.strides[inner][1];
    walk_packs(f.lines, size);
    return Packs::of_lines;
  }
  if (!starts_packs(f.lines, 0, size)) return Packs::none;
  if (f.reduced.dims == 1 && f.reduced.strides[0][0] == 1) {
    f.tail = f.reduced.sizes[0] % size;
    f.reduced.sizes[0] -= f.tail;
    f.reduced.count -= f.tail;
  } else if (!has_packs(f.reduced, 0, size)) {
    return Packs::none;
  }
  walk_packs(f.reduced, size);
  return Packs::along;
}

/// Threads and blocks, once it is known what an element of the walks is.
void deal(Folding& f, bool abreast) {
  constexpr int64_t kSteps = 8;
  const int64_t busy = blocks_of_device(1) * 1024;  // threads that keep the device so
  const int64_t blocks = busy / kFoldThreads;
  const int64_t n = f.reduced.count, lines = f.lines.count;
  if (abreast) {
    // A warp reads neighbouring lines; threads that these do not need share the elements.
    unsigned beside = power_of_2_from(lines, kWarp);
    beside = std::max(beside, kFoldThreads / power_of_2_from(n, kFoldThreads));
    f.team = {kFoldThreads / beside, beside, true};
  } else {
    // Some elements for each thread, neighbours enough for whole sectors, and more threads if lines are few.
    unsigned members = std::max(power_of_2_from(n / 4, kFoldThreads), power_of_2_from(n, 8));
    while (members < kFoldThreads && members < n && lines * members < busy) members *= 2;
    f.team = {members, kFoldThreads / members, false};
  }
  f.groups = divide_up(lines, f.team.lines);
  const int64_t most_parts = n / (f.team.members * kSteps), wanted = divide_up(blocks, f.groups);
  f.parts = f.groups >= blocks ? 1 : std::max<int64_t>(1, std::min(most_parts, wanted));
  f.part_size = divide_up(n, f.parts);
}

template <class Op, class E, int size, bool of_lines>
void run(const Folding& f) {
  using Acc = typename Op::Acc;
  const int64_t blocks = std::min<int64_t>(f.groups * f.parts, std::numeric_limits<int32_t>::max());
  const Grid grid{dim3(static_cast<unsigned>(blocks)), dim3(kFoldThreads)};
  constexpr int lines = of_lines ? size : 1;
  const int64_t results = f.lines.count * lines;
  std::optional<Scratch> partial;
  if (f.parts > 1) partial.emplace(static_cast<size_t>(f.parts * results) * sizeof(Acc));
  launch(fold<Op, E, size, of_lines>, grid, f, partial ? partial->as<Acc>() : nullptr);
  if (partial) launch(fold_parts<Op>, grid_for(results * kWarp), f, lines, partial->as<Acc>());
}

/// Whether neighbouring threads go over neighbouring lines, which are nearer than the elements of one.
bool is_abreast(const Folding& f) { return smallest_stride(f.lines, 0) < smallest_stride(f.reduced, 0); }

/// By elements of the type E, or of any with E = void; in packs where it can be.
template <class Op, class E, class Single = E>
void reduce_as(const View& out, const View& in, bool mean = false) {
  if (out.numel() == 0) return;
  Folding f = folding_of(out, in, mean);
  const bool abreast = is_abreast(f);
  Packs packs = Packs::none;
  if constexpr (!std::is_void_v<E>) packs = take_packs(f, abreast);
  deal(f, abreast);
  if constexpr (!std::is_void_v<E>) {
    constexpr int size = Pack<E>::size;
    if (packs == Packs::along) return run<Op, E, size, false>(f);
    if (packs == Packs::of_lines) return run<Op, E, size, true>(f);
  }
  run<Op, Single, 1, false>(f);
}

// --- entries of the table. A kernel for each dtype where speed matters: 32-bit and 16-bit floating.

/// Single<E>: the type, or void, to read single elements by.
template <template <class> class Op, template <class> class Single>
void reduce_numbers(const View& out, const View& in, bool mean = false) {
  dispatch(in.dtype, [&]<class E>(E) {
    if constexpr (is_16_bit<E> || std::is_same_v<E, float>)
      reduce_as<Op<float>, E, Single<E>>(out, in, mean);
    else
      reduce_as<Op<std::conditional_t<std::is_same_v<E, double>, double, int64_t>>, void>(out, in, mean);
  });
}

template <class E>
using Itself = E;
template <class E>
using Any = void;
template <class T>
using Largest = Extreme<T, true>;
template <class T>
using Smallest = Extreme<T, false>;

void sum(const View& out, const View& in) { reduce_numbers<Sum, Itself>(out, in); }
void mean(const View& out, const View& in) { reduce_numbers<Sum, Itself>(out, in, true); }
void amax(const View& out, const View& in) { reduce_numbers<Largest, Any>(out, in); }
void amin(const View& out, const View& in) { reduce_numbers<Smallest, Any>(out, in); }
void any(const View& out, const View& in) { reduce_as<Test<false>, void>(out, in); }
void all(const View& out, const View& in) { reduce_as<Test<true>, void>(out, in); }

template <bool largest>
void position(const View& out, const View& in) {
  if (in.dtype == DType::float64) return reduce_as<Position<double, largest>, void>(out, in);
  if (is_floating(in.dtype)) return reduce_as<Position<float, largest>, void>(out, in);
  reduce_as<Position<int64_t, largest>, void>(out, in);
}

}  // namespace

void add_reduce(Kernels& table) {
  table.reduce = {sum, mean, amax, amin, any, all, position<true>, position<false>};
}

}  // namespace mezzo::cuda
