// Passes of linear maps beside their products: gelu and its slope, bias and relu, sums of rows.
#include "cuda/linear.h"

#include <type_traits>

#include "cuda/block.cuh"
#include "cuda/pack.cuh"

namespace mezzo::cuda {
namespace {

// --- element by element: formulas of one or two operands, which `map` applies

struct GeluValue {
  static constexpr bool reads_second = false;
  template <class T>
  __device__ T operator()(T x, T) const {
    return pointwise::Gelu::value(x);
  }
};
struct TimesGeluSlope {
  static constexpr bool reads_second = true;
  template <class T>
  __device__ T operator()(T g, T x) const {
    return g * pointwise::Gelu::slope(x);
  }
};
struct PlusRelu {
  static constexpr bool reads_second = true;
  template <class T>
  __device__ T operator()(T x, T bias) const {
    return pointwise::Relu::value(x + bias);
  }
};
struct ReluValue {
  static constexpr bool reads_second = false;
  template <class T>
  __device__ T operator()(T x, T) const {
    return pointwise::Relu::value(x);
  }
};

/// out = f(a, b) in any strides.
template <class E, class F>
__global__ void map_strided(E* out, const E* a, const E* b, Walk<3> walk, F f) {
  using T = Compute<E>;
  for (int64_t i = first_item(); i < walk.count; i += grid_stride()) {
    int64_t place[3];
    walk.places(i, place);
    const T second = F::reads_second ? convert_to<T>(b[place[2]]) : T(0);
    out[place[0]] = convert_to<E>(f(convert_to<T>(a[place[1]]), second));
  }
}

/// The same of dense operands, 16 bytes at a time; b repeats after `period` packs.
template <class E, class F>
__global__ void map_packs(Pack<E>* out, const Pack<E>* a, const Pack<E>* b, int64_t count, int64_t period,
                          F f) {
  using T = Compute<E>;
  for (int64_t i = first_item(); i < count; i += grid_stride()) {
    const Pack<E> x = a[i];
    Pack<E> y{}, result;
    if constexpr (F::reads_second) y = b[period == count ? i : i % period];
#pragma unroll
    for (int j = 0; j < Pack<E>::size; ++j)
      result.elements[j] = convert_to<E>(f(convert_to<T>(x.elements[j]), convert_to<T>(y.elements[j])));
    out[i] = result;
  }
}

/// out [P, O] = f(a, b), where b may be one row, with stride 0. Reads and writes each element once.
template <class F>
void map(const View& out, const View& a, const View& b, F f) {
  if (out.numel() == 0) return;
  dispatch_floating(out.dtype, [&]<class E>(E) {
    constexpr int64_t size = Pack<E>::size;
    const bool one_row = b.given() && b.strides[0] == 0;
    const int64_t period = one_row ? out.shape[1] : out.numel();
    const Shape strides = contiguous_strides(out.shape);
    const bool dense = out.strides == strides && a.strides == strides &&
                       (!b.given() || (one_row ? b.strides[1] == 1 : b.strides == strides));
    const bool aligned = is_aligned(out.data) && is_aligned(a.data) && is_aligned(b.data);
    if (dense && aligned && out.numel() % size == 0 && period % size == 0) {
      const int64_t packs = out.numel() / size;
      return launch(map_packs<E, F>, grid_for(packs), out.as<Pack<E>>(), a.as<const Pack<E>>(),
                    b.as<const Pack<E>>(), packs, period / size, f);
    }
    launch(map_strided<E, F>, grid_for(out.numel()), out.as<E>(), a.as<const E>(), b.as<const E>(),
           Walk<3>({&out, &a, &b}), f);
  });
}

// --- sums of rows

/// A matrix as an argument of a kernel.
struct Matrix {
  const void* data;
  int64_t row, column;  ///< strides

  explicit Matrix(const View& view)
      : data(view.data),
        row(view.given() ? view.strides[0] : 0),
        column(view.given() ? view.strides[1] : 0) {}
};

constexpr int kColumnThreads = 32;

/// Chunk blockIdx.y of the rows: sums[chunk, o] = sum of its g, `step` elements apart, and passed [P, O] = g.
/// A thread has `width` columns side by side, more than 1 if they are a pack, and one of each row_threads
/// rows.
template <class E, class S, bool relu, int width, int row_threads>
__global__ void sum_chunk(S* sums, int64_t step, E* passed, Matrix grad_out, Matrix out, int64_t rows,
                          int64_t columns, int64_t chunk_rows) {
  using T = Compute<E>;
  using P = Pack<E, width>;
  const int64_t first = (int64_t{blockIdx.x} * kColumnThreads + threadIdx.x) * width;
  const int64_t begin = blockIdx.y * chunk_rows;
  const int64_t end = first < columns ? std::min(rows, begin + chunk_rows) : begin;
  const auto pack_of = [&](const Matrix& matrix, int64_t p) {
    return *reinterpret_cast<const P*>(static_cast<const E*>(matrix.data) + p * matrix.row +
                                       first * matrix.column);
  };
  T sum[width] = {};
#pragma unroll 4
  for (int64_t p = begin + threadIdx.y; p < end; p += row_threads) {
    P g = pack_of(grad_out, p);
    if constexpr (relu) {
      const P y = pack_of(out, p);
#pragma unroll
      for (int j = 0; j < width; ++j) {
        if (convert_to<T>(y.elements[j]) == T(0)) g.elements[j] = convert_to<E>(T(0));
      }
    }
    if (passed != nullptr) *reinterpret_cast<P*>(passed + p * columns + first) = g;
#pragma unroll
    for (int j = 0; j < width; ++j) sum[j] += convert_to<T>(g.elements[j]);
  }
  if (sums == nullptr) return;  // in all threads
#pragma unroll
  for (int j = 0; j < width; ++j) {
    const T total = column_reduce<kColumnThreads, row_threads>(sum[j], Plus());
    if (threadIdx.y == 0 && first < columns)
      sums[(blockIdx.y * columns + first + j) * step] = convert_to<S>(total);
  }
}

/// Whether rows are made of packs of E.
template <class E>
bool has_packs(const View& matrix) {
  constexpr int64_t size = Pack<E>::size;
  return !matrix.given() || (matrix.strides[1] == 1 && matrix.strides[0] % size == 0 &&
                             matrix.shape[1] % size == 0 && is_aligned(matrix.data));
}

constexpr int kRowThreads = 8, kLastRowThreads = 32;

/// The first of the two passes, with or without a relu.
template <class E, int width>
auto sum_chunk_of(bool relu) {
  using T = Compute<E>;
  return relu ? sum_chunk<E, T, true, width, kRowThreads> : sum_chunk<E, T, false, width, kRowThreads>;
}

/// Reads each element once, in four blocks a multiprocessor; sums of their chunks, which are few, are added
/// up by a second launch.
template <class E>
void sum_of_rows_as(const View& sums, const View& passed, const View& grad_out, const View& out) {
  using T = Compute<E>;
  constexpr int64_t kBlockColumns = 256, kFewRows = 64;
  const int64_t rows = grad_out.shape[0], columns = grad_out.shape[1];
  const int64_t most = std::max<int64_t>(1, rows / kFewRows);
  const int64_t chunks =
      std::clamp<int64_t>(blocks_of_device(4) / divide_up(columns, kBlockColumns), 1, most);
  const auto grid = [&](int64_t width, int64_t chunks_of_rows, int row_threads) {
    return Grid{dim3(static_cast<unsigned>(divide_up(columns, kColumnThreads * width)),
                     static_cast<unsigned>(chunks_of_rows)),
                dim3(kColumnThreads, static_cast<unsigned>(row_threads))};
  };
  const bool packs = has_packs<E>(grad_out) && has_packs<E>(out) && has_packs<E>(passed);
  const Scratch partial(sums.given() ? static_cast<size_t>(chunks * columns) * sizeof(T) : 0);
  launch(packs ? sum_chunk_of<E, Pack<E>::size>(out.given()) : sum_chunk_of<E, 1>(out.given()),
         grid(packs ? Pack<E>::size : 1, chunks, kRowThreads), sums.given() ? partial.as<T>() : nullptr, 1,
         passed.as<E>(), Matrix(grad_out), Matrix(out), rows, columns, divide_up(rows, chunks));
  if (!sums.given()) return;
  const View chunk_sums{partial.data(), dtype_of<T>, {chunks, columns}, {columns, 1}};
  launch(sum_chunk<T, E, false, 1, kLastRowThreads>, grid(1, 1, kLastRowThreads), sums.as<E>(),
         sums.strides[0], nullptr, Matrix(chunk_sums), Matrix(View()), chunks, columns, chunks);
}

}  // namespace

void gelu(const View& out, const View& x) { map(out, x, {}, GeluValue()); }

void multiply_by_gelu_slope(const View& out, const View& x) { map(out, out, x, TimesGeluSlope()); }

void add_bias_relu(const View& out, const View& bias) {
  if (!bias.given()) return map(out, out, {}, ReluValue());
  map(out, out, in_every_row(bias, out.shape), PlusRelu());
}

void sum_of_rows(const View& sums, const View& passed, const View& grad_out, const View& out) {
  if (grad_out.shape[1] == 0) return;
  dispatch_floating(grad_out.dtype, [&]<class E>(E) { sum_of_rows_as<E>(sums, passed, grad_out, out); });
}

}  // namespace mezzo::cuda
