// Max pooling. A run is a row of windows (row-major) or the channels of one window (channels-last): each cell
// of the windows is then one array, and the largest so far are kept in another. Numbers of cells are counted
// in T beside them, so that both are vectors of one width.
#include <limits>
#include <vector>

#include "tensor/cpu/kernel_families.h"
#include "tensor/cpu/parallel.h"
#include "tensor/cpu/runs.h"
#include "tensor/cpu/scratch.h"

namespace mezzo::cpu {
namespace {

int64_t offset_at(const View& view, int64_t n, int64_t c, int64_t i, int64_t j) {
  return n * view.strides[0] + c * view.strides[1] + i * view.strides[2] + j * view.strides[3];
}

/// Whether neighbours in memory are channels.
bool is_channels_last(const View& view) { return view.strides[1] < view.strides[3]; }

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Which of the positions start, start + step, ... (`count` of them) lie in [0, size): numbers begin to end.
struct Inside {
  int64_t begin, end;
  Inside(int64_t start, int64_t step, int64_t count, int64_t size)
      : begin(start < 0 ? std::min(count, divide_up(-start, step)) : 0),
        end(start < size ? std::min(count, divide_up(size - start, step)) : 0) {}
};

/// One axis of the windows: where they begin, and which of their cells lie in the input.
struct Axis {
  int64_t size, kernel, stride, padding, dilation;

  Axis(const PoolGeometry& g, const View& input, size_t axis)
      : size(input.shape[2 + static_cast<int>(axis)]),
        kernel(g.kernel[axis]),
        stride(g.stride[axis]),
        padding(g.padding[axis]),
        dilation(g.dilation[axis]) {}

  int64_t position(int64_t window, int64_t cell) const { return window * stride + cell * dilation - padding; }
  Inside cells(int64_t window) const { return {position(window, 0), dilation, kernel, size}; }
  /// Windows, of the `count` from `first` on, whose cell `cell` is in the input; counted from `first`.
  Inside windows(int64_t first, int64_t count, int64_t cell) const {
    return {position(first, cell), stride, count, size};
  }
  /// f(window, cell) for the windows, of `count`, that have a cell at `position`, in order.
  template <class F>
  void for_windows(int64_t position, int64_t count, F&& f) const {
    const int64_t reach = dilation * (kernel - 1), at = position + padding;
    const int64_t first = at > reach ? divide_up(at - reach, stride) : 0;
    for (int64_t window = first; window < count && window * stride <= at; ++window) {
      const int64_t distance = at - window * stride;
      if (distance % dilation == 0) f(window, distance / dilation);
    }
  }
};

/// The largest elements of a run of windows so far, and the cells that they are in.
template <class T>
struct Winners {
  T largest[kChunk], cell[kChunk];

  /// x: cell `number` of the windows [begin, end), `step` apart.
  template <class Step>
  void meet(int64_t begin, int64_t end, const T* x, Step step, T number) {
#pragma omp simd
    for (int64_t j = begin; j < end; ++j) {
      const T value = x[(j - begin) * step];
      const bool wins = (value > largest[j]) | (value != value);
      largest[j] = wins ? value : largest[j];
      cell[j] = wins ? number : cell[j];
    }
  }

  void meet(int64_t begin, int64_t end, const View& input, int64_t offset, int64_t stride, int64_t number) {
    if (end <= begin) return;
    const T cell_number = static_cast<T>(number);
    if (input.dtype == dtype_of<T> && stride == 2)
      return meet(begin, end, input.as<T>() + offset, std::integral_constant<int64_t, 2>(), cell_number);
    T buffer[kChunk];
    const T* x = read_run(input, offset, stride, end - begin, buffer);
    meet(begin, end, x, std::integral_constant<int64_t, 1>(), cell_number);
  }

  void store(const View& out, const View& cells, int64_t n, int64_t c, int64_t i, int64_t j, int d,
             int64_t count) const {
    store_run(address(out, offset_at(out, n, c, i, j)), out.dtype, out.strides[d], largest, count);
    if (cells.given())
      store_run(address(cells, offset_at(cells, n, c, i, j)), cells.dtype, cells.strides[d], cell, count);
  }
};

/// A row of windows of one channel.
template <class T>
void pool_columns(const View& out, const View& cells, const View& input, const Axis& rows,
                  const Axis& columns, int64_t n, int64_t c, int64_t i) {
  Winners<T> winners;
  const Inside inside = rows.cells(i);
  for (int64_t first = 0; first < out.shape[3]; first += kChunk) {
    const int64_t count = std::min(kChunk, out.shape[3] - first);
    std::fill_n(winners.largest, count, -std::numeric_limits<T>::infinity());
    for (int64_t j = 0; j < count; ++j)
      winners.cell[j] = static_cast<T>(inside.begin * columns.kernel + columns.cells(first + j).begin);
    for (int64_t u = inside.begin; u < inside.end; ++u) {
      for (int64_t v = 0; v < columns.kernel; ++v) {
        const Inside windows = columns.windows(first, count, v);
        const int64_t from =
            offset_at(input, n, c, rows.position(i, u), columns.position(first + windows.begin, v));
        winners.meet(windows.begin, windows.end, input, from, columns.stride * input.strides[3],
                     u * columns.kernel + v);
      }
    }
    winners.store(out, cells, n, c, i, first, 3, count);
  }
}

/// A row of windows of all channels.
template <class T>
void pool_channels(const View& out, const View& cells, const View& input, const Axis& rows,
                   const Axis& columns, int64_t n, int64_t i) {
  Winners<T> winners;
  const Inside inside = rows.cells(i);
  for (int64_t j = 0; j < out.shape[3]; ++j) {
    const Inside across = columns.cells(j);
    for (int64_t c = 0; c < out.shape[1]; c += kChunk) {
      const int64_t count = std::min(kChunk, out.shape[1] - c);
      std::fill_n(winners.largest, count, -std::numeric_limits<T>::infinity());
      std::fill_n(winners.cell, count, static_cast<T>(inside.begin * columns.kernel + across.begin));
      for (int64_t u = inside.begin; u < inside.end; ++u) {
        for (int64_t v = across.begin; v < across.end; ++v) {
          winners.meet(0, count, input, offset_at(input, n, c, rows.position(i, u), columns.position(j, v)),
                       input.strides[1], u * columns.kernel + v);
        }
      }
      winners.store(out, cells, n, c, i, j, 1, count);
    }
  }
}

template <class T>
void max_pool2d_as(const View& out, const View& cells, const View& input, const PoolGeometry& geometry) {
  const Axis rows(geometry, input, 0), columns(geometry, input, 1);
  const int64_t N = out.shape[0], C = out.shape[1], OH = out.shape[2];
  const int64_t work = out.numel() / std::max<int64_t>(1, N * OH) * rows.kernel * columns.kernel;
  if (is_channels_last(out)) {
    parallel_for(N * OH, 1 + kParallelElements / work, [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k)
        pool_channels<T>(out, cells, input, rows, columns, k / OH, k % OH);
    });
  } else {
    parallel_for(N * C * OH, 1 + kParallelElements * C / work, [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k)
        pool_columns<T>(out, cells, input, rows, columns, k / OH / C, k / OH % C, k % OH);
    });
  }
}

void max_pool2d(const View& out, const View& cells, const View& input, const PoolGeometry& geometry) {
  if (out.numel() == 0) return;
  (out.dtype == DType::float64 ? max_pool2d_as<double> : max_pool2d_as<float>)(out, cells, input, geometry);
}

// --- backward

/// Where a window has each of its cells, from its first one on: `offset` is that in a plane of the input.
struct CellPlace {
  int64_t row, column, offset;
};
std::vector<CellPlace> cell_places(const Axis& rows, const Axis& columns) {
  std::vector<CellPlace> places;
  for (int64_t u = 0; u < rows.kernel; ++u) {
    for (int64_t v = 0; v < columns.kernel; ++v) {
      const int64_t row = u * rows.dilation, column = v * columns.dilation;
      places.push_back({row, column, row * columns.size + column});
    }
  }
  return places;
}

/// Whether the rows of a plane follow one another as the elements of a row do.
bool rows_follow(const View& view) {
  return view.shape[2] == 1 || view.strides[2] == view.shape[3] * view.strides[3];
}

/// The sums of one channel of an image: each window adds to the element that won.
template <class T>
class PlaneSums {
 public:
  PlaneSums(const Axis& rows, const Axis& columns)
      : rows_(rows), columns_(columns), places_(cell_places(rows, columns)) {}

  /// sums[H, W] of all windows of channel c of image n.
  void add_windows(T* sums, const View& grad_out, const View& cells, int64_t n, int64_t c) const {
    const int64_t OH = grad_out.shape[2], OW = grad_out.shape[3];
    const bool follow = OW <= kChunk && rows_follow(grad_out) && rows_follow(cells);
    const int64_t most = follow ? kChunk / std::max<int64_t>(1, OW) : 1;  // rows to read at once
    for (int64_t first = 0; first < OW; first += kChunk) {
      const int64_t count = std::min(kChunk, OW - first);
      const Inside first_cells = columns_.windows(first, count, 0);
      const Inside last_cells = columns_.windows(first, count, columns_.kernel - 1);
      const Whole whole{first_cells.begin, std::max(first_cells.begin, last_cells.end)};
      for (int64_t i = 0; i < OH; i += most) {
        const int64_t rows = std::min(most, OH - i);
        T g_buffer[kChunk];
        int32_t cell_buffer[kChunk];
        const T* g = read_run(grad_out, offset_at(grad_out, n, c, i, first), grad_out.strides[3],
                              rows * count, g_buffer);
        const int32_t* cell =
            read_run(cells, offset_at(cells, n, c, i, first), cells.strides[3], rows * count, cell_buffer);
        for (int64_t r = 0; r < rows; ++r, g += count, cell += count)
          add_row(sums, g, cell, count, whole, rows_.position(i + r, 0), columns_.position(first, 0));
      }
    }
  }

 private:
  /// Windows [begin, end) that lie in the input from left to right.
  struct Whole {
    int64_t begin, end;
  };

  /// A row of windows, of which the first has its first cell at [top, left].
  void add_row(T* sums, const T* g, const int32_t* cell, int64_t count, Whole whole, int64_t top,
               int64_t left) const {
    const int64_t H = rows_.size, W = columns_.size, step = columns_.stride;
    const CellPlace* places = places_.data();
    const size_t all = places_.size();
    const auto add_checked = [&](int64_t begin, int64_t end) {
      for (int64_t j = begin; j < end; ++j) {
        const auto number = static_cast<size_t>(cell[j]);
        if (number >= all) continue;
        const int64_t row = top + places[number].row, column = left + j * step + places[number].column;
        if (row >= 0 && row < H && column >= 0 && column < W) sums[row * W + column] += g[j];
      }
    };
    if (top < 0 || top + rows_.dilation * (rows_.kernel - 1) >= H) return add_checked(0, count);
    add_checked(0, whole.begin);
    for (int64_t j = whole.begin; j < whole.end; ++j) {
      const auto number = static_cast<size_t>(cell[j]);
      if (number < all) sums[top * W + left + j * step + places[number].offset] += g[j];
    }
    add_checked(whole.end, count);
  }

  const Axis &rows_, &columns_;
  std::vector<CellPlace> places_;
};

/// Whether the pixels of a row follow one another as the channels of a pixel do.
bool pixels_follow(const View& view) {
  return view.shape[3] == 1 || view.strides[3] == view.shape[1] * view.strides[1];
}

/// The sums of one row of an image in all channels, sums[W, C], from the windows that have cells in it.
template <class T>
void collect_row(T* sums, const View& grad_out, const View& cells, const Axis& rows, const Axis& columns,
                 int64_t n, int64_t row) {
  const int64_t C = grad_out.shape[1], OW = grad_out.shape[3], W = columns.size;
  const bool follow = C <= kChunk && pixels_follow(grad_out) && pixels_follow(cells);
  const int64_t most = follow ? kChunk / C : 1;  // windows to read at once
  std::fill_n(sums, W * C, T(0));
  rows.for_windows(row, grad_out.shape[2], [&](int64_t i, int64_t u) {
    for (int64_t first = 0; first < OW; first += most) {
      const int64_t windows = std::min(most, OW - first);
      for (int64_t c = 0; c < C; c += kChunk) {
        const int64_t count = std::min(kChunk, C - c);
        T g_buffer[kChunk], cell_buffer[kChunk];
        const T* g = read_run(grad_out, offset_at(grad_out, n, c, i, first), grad_out.strides[1],
                              windows * count, g_buffer);
        const T* cell =
            read_run(cells, offset_at(cells, n, c, i, first), cells.strides[1], windows * count, cell_buffer);
        for (int64_t j = first; j < first + windows; ++j, g += count, cell += count) {
          const Inside across = columns.cells(j);
          for (int64_t v = across.begin; v < across.end; ++v) {
            const T number = static_cast<T>(u * columns.kernel + v);
            T* sum = sums + columns.position(j, v) * C + c;
#pragma omp simd
            for (int64_t k = 0; k < count; ++k) sum[k] += cell[k] == number ? g[k] : T(0);
          }
        }
      }
    }
  });
}

template <class T>
void max_pool2d_grad_as(const View& grad_input, const View& grad_out, const View& cells,
                        const PoolGeometry& geometry) {
  const Axis rows(geometry, grad_input, 0), columns(geometry, grad_input, 1);
  const int64_t N = grad_input.shape[0], C = grad_input.shape[1], H = rows.size, W = columns.size;
  if (is_channels_last(grad_input)) {
    const bool in_place = memory_run<T>(grad_input, 0, grad_input.strides[1], C) && pixels_follow(grad_input);
    parallel_for(N * H, 1 + kParallelElements / (C * W), [&](int64_t begin, int64_t end) {
      const Scratch room(in_place ? 0 : static_cast<size_t>(C * W) * sizeof(T));
      for (int64_t k = begin; k < end; ++k) {
        const int64_t row = offset_at(grad_input, k / H, 0, k % H, 0);
        T* sums = in_place ? grad_input.as<T>() + row : room.as<T>();
        collect_row(sums, grad_out, cells, rows, columns, k / H, k % H);
        for (int64_t column = 0; column < W && !in_place; ++column) {
          store_run(address(grad_input, row + column * grad_input.strides[3]), grad_input.dtype,
                    grad_input.strides[1], sums + column * C, C);
        }
      }
    });
  } else {
    const PlaneSums<T> windows(rows, columns);
    const bool in_place = memory_run<T>(grad_input, 0, grad_input.strides[3], W) && rows_follow(grad_input);
    parallel_for(N * C, 1 + kParallelElements / (H * W), [&](int64_t begin, int64_t end) {
      const Scratch room(in_place ? 0 : static_cast<size_t>(H * W) * sizeof(T));
      for (int64_t k = begin; k < end; ++k) {
        const int64_t plane = offset_at(grad_input, k / C, k % C, 0, 0);
        T* sums = in_place ? grad_input.as<T>() + plane : room.as<T>();
        std::fill_n(sums, H * W, T(0));
        windows.add_windows(sums, grad_out, cells, k / C, k % C);
        for (int64_t row = 0; row < H && !in_place; ++row) {
          store_run(address(grad_input, plane + row * grad_input.strides[2]), grad_input.dtype,
                    grad_input.strides[3], sums + row * W, W);
        }
      }
    });
  }
}

void max_pool2d_grad(const View& grad_input, const View& grad_out, const View& cells,
                     const PoolGeometry& geometry) {
  if (grad_input.numel() == 0) return;
  (grad_out.dtype == DType::float64 ? max_pool2d_grad_as<double>
                                    : max_pool2d_grad_as<float>)(grad_input, grad_out, cells, geometry);
}

}  // namespace

void add_pool(Kernels& table) {
  table.max_pool2d = max_pool2d;
  table.max_pool2d_grad = max_pool2d_grad;
}

}  // namespace mezzo::cpu
