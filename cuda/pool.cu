// Max pooling: a thread for each window, and in the gradient for each element of the input, which looks into
// the windows that have it: no two threads write to one place. Threads follow the memory, row-major or
// channels-last; in the latter a thread has as many channels as 16 bytes hold. Neighbouring windows overlap
// in the cache: the memory is read and written once.
#include <limits>

#include "cuda/kernel_families.h"
#include "cuda/pack.cuh"

namespace mezzo::cuda {
namespace {

/// A view [N, C, H, W], and how its elements are numbered: along W first, or along C.
struct Planes {
  void* data;
  DType dtype;
  bool channels_last, small;  ///< small: numbers fit 32 bits
  int64_t count, sizes[4], strides[4];

  Planes(const View& view, bool channels_last)
      : data(view.data), dtype(view.dtype), channels_last(channels_last) {
    count = view.given() ? view.numel() : 0;
    small = count <= std::numeric_limits<int32_t>::max();
    for (int d = 0; d < 4 && view.given(); ++d) sizes[d] = view.shape[d], strides[d] = view.strides[d];
  }

  __device__ int64_t offset(int64_t n, int64_t c, int64_t row, int64_t column) const {
    return n * strides[0] + c * strides[1] + row * strides[2] + column * strides[3];
  }
};

struct Position {
  int64_t n, c, row, column;
};

/// i modulo size, which is taken out of i.
__device__ inline int64_t take(int64_t& i, int64_t size, bool small) {
  int64_t rest;
  if (small) {
    const auto low = static_cast<uint32_t>(i), by = static_cast<uint32_t>(size);
    rest = low % by;
    i = low / by;
  } else {
    rest = i % size;
    i /= size;
  }
  return rest;
}

/// Where element i is, by the numbering that threads follow; `channels` of a pack count as one.
__device__ inline Position position_of(const Planes& planes, int64_t i, int channels) {
  Position at{};
  if (planes.channels_last) at.c = take(i, planes.sizes[1] / channels, planes.small) * channels;
  at.column = take(i, planes.sizes[3], planes.small);
  at.row = take(i, planes.sizes[2], planes.small);
  if (!planes.channels_last) at.c = take(i, planes.sizes[1], planes.small);
  at.n = i;
  return at;
}

/// The largest of each window, and which cell of it that is. Cell: the type of cells, or void for any.
template <class E, class Cell, int size>
__global__ void max_pool(const Planes out, const Planes cells, const Planes input,
                         const PoolGeometry geometry) {
  using T = Compute<E>;
  const int64_t kernel_height = geometry.kernel[0], kernel_width = geometry.kernel[1];
  for (int64_t i = first_item(); i < out.count / size; i += grid_stride()) {
    const Position at = position_of(out, i, size);
    const int64_t top = at.row * geometry.stride[0] - geometry.padding[0];
    const int64_t left = at.column * geometry.stride[1] - geometry.padding[1];
    T largest[size];
    int32_t winner[size];
    for (int j = 0; j < size; ++j) largest[j] = -std::numeric_limits<T>::infinity(), winner[j] = -1;
    for (int64_t u = 0; u < kernel_height; ++u) {
      const int64_t row = top + u * geometry.dilation[0];
      if (row < 0 || row >= input.sizes[2]) continue;
      for (int64_t v = 0; v < kernel_width; ++v) {
        const int64_t column = left + v * geometry.dilation[1];
        if (column < 0 || column >= input.sizes[3]) continue;
        T x[size];
        load_pack<E>(x, input.data, input.dtype, input.offset(at.n, at.c, row, column));
        for (int j = 0; j < size; ++j) {
          if (winner[j] >= 0 && !(x[j] > largest[j]) && x[j] == x[j]) continue;
          largest[j] = x[j];
          winner[j] = static_cast<int32_t>(u * kernel_width + v);
        }
      }
    }
    store_pack<E>(out.data, out.dtype, out.offset(at.n, at.c, at.row, at.column), largest);
    if (cells.data == nullptr) continue;
    store_pack<Cell>(cells.data, cells.dtype, cells.offset(at.n, at.c, at.row, at.column), winner);
  }
}

/// The windows that may have the row (or column) `at`: from first to last, by steps of 1.
struct Windows {
  int64_t first, last;

  __device__ Windows(const PoolGeometry& g, size_t axis, int64_t at, int64_t count) {
    const int64_t top = at + g.padding[axis], bottom = top - (g.kernel[axis] - 1) * g.dilation[axis];
    first = bottom <= 0 ? 0 : (bottom + g.stride[axis] - 1) / g.stride[axis];
    last = std::min(top / g.stride[axis], count - 1);
  }
};

/// Which of its rows (or columns) window number `window` has at `at`; -1: none.
__device__ inline int64_t cell_in(const PoolGeometry& g, size_t axis, int64_t at, int64_t window) {
  const int64_t distance = at + g.padding[axis] - window * g.stride[axis];
  return distance % g.dilation[axis] == 0 ? distance / g.dilation[axis] : -1;
}

/// The sum of grad_out over the windows that took an element for the largest.
template <class E, class Cell, int size>
__global__ void max_pool_grad(const Planes grad_input, const Planes grad_out, const Planes cells,
                              const PoolGeometry geometry) {
  using T = Compute<E>;
  using Number = std::conditional_t<std::is_void_v<Cell>, int64_t, int32_t>;
  for (int64_t i = first_item(); i < grad_input.count / size; i += grid_stride()) {
    const Position at = position_of(grad_input, i, size);
    const Windows rows(geometry, 0, at.row, grad_out.sizes[2]),
        columns(geometry, 1, at.column, grad_out.sizes[3]);
    T sum[size] = {};
    for (int64_t row = rows.first; row <= rows.last; ++row) {
      const int64_t u = cell_in(geometry, 0, at.row, row);
      for (int64_t column = columns.first; u >= 0 && column <= columns.last; ++column) {
        const int64_t v = cell_in(geometry, 1, at.column, column);
        if (v < 0) continue;
        const auto cell = static_cast<Number>(u * geometry.kernel[1] + v);
        T g[size];
        Number winner[size];
        load_pack<E>(g, grad_out.data, grad_out.dtype, grad_out.offset(at.n, at.c, row, column));
        load_pack<Cell>(winner, cells.data, cells.dtype, cells.offset(at.n, at.c, row, column));
        for (int j = 0; j < size; ++j) sum[j] += winner[j] == cell ? g[j] : T(0);
      }
    }
    store_pack<E>(grad_input.data, grad_input.dtype, grad_input.offset(at.n, at.c, at.row, at.column), sum);
  }
}

/// Whether channels lie nearer than columns.
bool is_channels_last(const View& view) { return view.shape[1] > 1 && view.strides[1] < view.strides[3]; }

/// Whether a thread can take `size` channels of a view at once.
bool has_channel_packs(const View& view, int size) {
  bool whole = view.shape[1] % size == 0 && view.strides[1] == 1 && is_aligned(view.data);
  for (const int d : {0, 2, 3}) whole &= view.strides[d] % size == 0;
  return whole;
}

/// Whether a thread can take the cells of `size` channels at once: bytes, which serve all but huge windows.
bool has_cell_packs(const View& cells, int size) {
  return !cells.given() || (cells.dtype == DType::uint8 && has_channel_packs(cells, size));
}

void max_pool2d(const View& out, const View& cells, const View& input, const PoolGeometry& geometry) {
  if (out.numel() == 0) return;
  const bool last = is_channels_last(out);
  dispatch_floating(out.dtype, [&]<class E>(E) {
    constexpr int size = Pack<E>::size;
    const bool packs =
        last && has_channel_packs(out, size) && has_channel_packs(input, size) && has_cell_packs(cells, size);
    launch(packs ? max_pool<E, uint8_t, size> : max_pool<E, void, 1>,
           grid_for(out.numel() / (packs ? size : 1)), Planes(out, last), Planes(cells, last),
           Planes(input, last), geometry);
  });
}

void max_pool2d_grad(const View& grad_input, const View& grad_out, const View& cells,
                     const PoolGeometry& geometry) {
  if (grad_input.numel() == 0) return;
  const bool last = is_channels_last(grad_input);
  dispatch_floating(grad_input.dtype, [&]<class E>(E) {
    constexpr int size = Pack<E>::size;
    const bool packs = last && has_channel_packs(grad_input, size) && has_channel_packs(grad_out, size) &&
                       has_cell_packs(cells, size);
    launch(packs ? max_pool_grad<E, uint8_t, size> : max_pool_grad<E, void, 1>,
           grid_for(grad_input.numel() / (packs ? size : 1)), Planes(grad_input, last),
           Planes(grad_out, last), Planes(cells, last), geometry);
  });
}

}  // namespace

void add_pool(Kernels& table) {
  table.max_pool2d = max_pool2d;
  table.max_pool2d_grad = max_pool2d_grad;
}

}  // namespace mezzo::cuda
