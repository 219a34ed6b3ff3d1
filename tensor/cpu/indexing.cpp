// Elements by position. gather takes runs of the result; where one position serves a whole run (slices of a
// row-major tensor), the run is copied. scatter and scatter_add work on columns along the dimension, each of
// which belongs to one thread: what meets in one place has one order, whatever the number of threads. Where
// positions are a list, columns side by side go together, row by row.
#include <type_traits>

#include "tensor/cpu/columns.h"
#include "tensor/cpu/kernel_families.h"
#include "tensor/cpu/stream.h"

namespace mezzo::cpu {
namespace {

/// `view` as kernels walk it beside index: only its position along dim is still to come.
View beside(const View& view, const Shape& shape, int dim) {
  View result{view.data, view.dtype, shape, view.strides};
  result.strides[dim] = 0;
  return result;
}

/// out[i * out_step] = in[i * in_step] for n elements.
template <class T>
void copy_run(T* out, int64_t out_step, const T* in, int64_t in_step, int64_t n) {
  if (out_step == 1 && in_step == 1)
    std::copy_n(in, n, out);
  else
    for (int64_t i = 0; i < n; ++i) out[i * out_step] = in[i * in_step];
}

template <class T>
void gather_as(const View& out, const View& in, const View& index, int dim) {
  const View source = beside(in, out.shape, dim);
  const std::array<const View*, 3> views{&out, &source, &index};
  const StridedLoop loop(views);
  const int64_t step = in.strides[dim], to = loop.stride(0), from = loop.stride(1), next = loop.stride(2);
  const bool streamed = next == 0 && to == 1 && from == 1 && is_streamed(out);
  parallel_for(loop.size(), kParallelElements, [&](int64_t begin, int64_t end) {
    loop.for_runs(begin, end, [&](const StridedLoop::Offsets& at, int64_t n) {
      T* y = out.as<T>() + at[0];
      const T* x = in.as<T>() + at[1];
      const int64_t* position = index.as<int64_t>() + at[2];
      if (streamed) return stream(y, x + *position * step, static_cast<size_t>(n) * sizeof(T));
      if (next == 0) return copy_run(y, to, x + *position * step, from, n);
      for (int64_t i = 0; i < n; ++i) y[i * to] = x[i * from + position[i * next] * step];
    });
    if (streamed) finish_streams();
  });
}

void gather(const View& out, const View& in, const View& index, int dim) {
  if (out.numel() == 0) return;
  dispatch(out.dtype, [&]<class T>(T) { gather_as<T>(out, in, index, dim); });
}

/// The elements of a piece of `view`, of which neighbours are `step` apart: memory itself, or `buffer` if
/// they must be converted to T first.
template <class T>
const T* read_piece(const View& view, int64_t offset, int64_t& step, int64_t n, T* buffer) {
  if constexpr (std::is_arithmetic_v<T>) {  // 16-bit values are never converted to
    if (view.dtype != dtype_of<T>) {
      const T* x = read_run(view, offset, step, n, buffer);
      step = 1;
      return x;
    }
  }
  return view.as<T>() + offset;
}

/// Whether positions along dim are the same for all that lies beside it: a list.
bool is_list(const View& index, int dim) {
  for (int d = 0; d < index.shape.dim(); ++d)
    if (d != dim && index.shape[d] != 1 && index.strides[d] != 0) return false;
  return true;
}

/// scatter_as for a list of positions: a row of a strip goes to a row of out.
template <class T, class Put>
void scatter_rows(const Columns& columns, const View& out, const View& index, const View& source, int dim,
                  Put put) {
  const int64_t step = out.strides[dim], side = columns.column_stride(1);
  columns.for_strips([&](int64_t strip) {
    const int64_t width = columns.width(strip);
    const Columns::Offsets at = columns.offsets(strip);
    T* first = out.as<T>() + at[1];
    const int64_t* position = index.as<int64_t>();
    T buffer[kChunk];
    for (int64_t row = 0; row < columns.rows(); ++row, position += index.strides[dim]) {
      int64_t next = columns.stride(0);
      const T* x = read_piece(source, at[0] + row * source.strides[dim], next, width, buffer);
      T* place = first + *position * step;
      if (side == 1 && next == 1) {
#pragma omp simd
        for (int64_t j = 0; j < width; ++j) put(place[j], x[j]);
      } else {
        for (int64_t j = 0; j < width; ++j) put(place[j * side], x[j * next]);
      }
    }
  });
}

/// put(place, x) for each element x of source and its place in out, in order.
template <class T, class Put>
void scatter_as(const View& out, const View& index, const View& source, int dim, Put put) {
  const View places = beside(out, source.shape, dim);
  if (is_list(index, dim)) {
    const std::array<const View*, 2> views{&source, &places};
    // Narrower strips share rows among threads; no sum is another for it.
    const int64_t widest = num_threads() > 1 ? kChunk / 4 : kChunk;
    const auto is_row = [&](int d) { return d == dim; };
    const Columns columns(views, 1, is_row, widest);
    if (!columns.are_lines()) return scatter_rows<T>(columns, out, index, source, dim, put);
  }
  const std::array<const View*, 3> views{&source, &index, &places};
  const Columns columns(views, 2, [&](int d) { return d == dim; });
  const int64_t step = out.strides[dim], side = columns.column_stride(2);
  columns.for_strips([&](int64_t strip) {
    const int64_t width = columns.width(strip);
    T* first = out.as<T>() + columns.offsets(strip)[2];
    for (int64_t block = 0; block < columns.blocks(); ++block) {
      columns.for_pieces(strip, block, [&](const Columns::Offsets& at, int64_t n, int64_t) {
        T x_buffer[kChunk];
        int64_t position_buffer[kChunk], next = columns.stride(0);
        const T* x = read_piece(source, at[0], next, n, x_buffer);
        const int64_t* position = read_run(index, at[1], columns.stride(1), n, position_buffer);
        for (int64_t row = 0; row < n; row += width) {
          for (int64_t j = 0; j < width; ++j)
            put(first[j * side + position[row + j] * step], x[(row + j) * next]);
        }
      });
    }
  });
}

void scatter(const View& out, const View& index, const View& source, int dim) {
  if (source.numel() == 0) return;
  dispatch(out.dtype,
           [&]<class T>(T) { scatter_as<T>(out, index, source, dim, [](T& place, T x) { place = x; }); });
}

void scatter_add(const View& out, const View& index, const View& source, int dim) {
  if (source.numel() == 0) return;
  dispatch(out.dtype, [&]<class T>(T) {
    if constexpr (std::is_arithmetic_v<T>) {
      const auto put = [](T& sum, T x) { sum = static_cast<T>(sum + x); };
      scatter_as<T>(out, index, source, dim, put);
    }
  });
}

}  // namespace

void add_indexing(Kernels& table) {
  table.gather = gather;
  table.scatter = scatter;
  table.scatter_add = scatter_add;
}

}  // namespace mezzo::cpu
