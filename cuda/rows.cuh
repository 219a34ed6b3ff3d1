// Walking operands as rows of elements that a block goes through one after the other, in packs of 16 bytes
// where rows lie so.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "cuda/access.cuh"

namespace mezzo::cuda {

/// Operands of a kernel: `whole` views of rows of elements, then two with one element per row, then
/// `per_column` with one per column. All but the first may be not given.
template <int whole, int per_column>
struct Rows {
  static constexpr int count = whole + 2 + per_column;
  void* data[count];
  DType dtypes[count];
  Walk<whole + 2> rows;
  Walk<whole + per_column> columns;
  bool packed;  ///< rows lie in packs of 16 bytes

  /// The last `row_dims` dimensions make a row.
  Rows(const std::array<View, count>& views, int row_dims)
      : rows(walk_rows(views, views[0].shape.dim() - row_dims)),
        columns(walk_columns(views, views[0].shape.dim() - row_dims)) {
    for (size_t v = 0; v < count; ++v) data[v] = views[v].data, dtypes[v] = views[v].dtype;
    packed = can_pack();
  }

  /// f(Access) for the way that these views can be read.
  template <class F>
  void with_access(F&& f) const {
    packed ? with_packs<false>(dtypes[0], f) : with_elements(dtypes[0], f);
  }
  /// A thread for each pack of a row, up to 512.
  unsigned threads() const {
    const int64_t width = packed ? pack_size(dtypes[0]) : 1;
    const int64_t warps = divide_up(columns.count, width * kWarp);
    return kWarp * static_cast<unsigned>(std::clamp<int64_t>(warps, 1, 16));
  }

  __device__ bool given(int v) const { return data[v] != nullptr; }
  /// f(pack, place) for the thread's packs of a row: the number of each, and its place from the row's in the
  /// whole views and then those per column.
  template <class A, class F>
  __device__ void for_packs(F&& f) const {
    for (int64_t pack = threadIdx.x; pack * A::width < columns.count; pack += blockDim.x) {
      int64_t place[whole + per_column];
      columns.places(pack * A::width, place);
      f(pack, place);
    }
  }
  template <class A>
  __device__ void read(typename A::T (&values)[A::width], int v, int64_t place) const {
    A::read(values, data[v], dtypes[v], place);
  }
  template <class A>
  __device__ void write(const typename A::T (&values)[A::width], int v, int64_t place) const {
    A::write(values, data[v], dtypes[v], place);
  }
  /// Of a row.
  template <class T>
  __device__ T get(int v, const int64_t (&row)[whole + 2]) const {
    return load<T>(data[v], dtypes[v], row[v]);
  }
  /// Of columns: parameters may have the type of the rows or that of the arithmetic.
  template <class A>
  __device__ void read_parameters(typename A::T (&values)[A::width], int v,
                                  const int64_t (&place)[whole + per_column], typename A::T otherwise) const {
    using T = typename A::T;
    if (!given(v)) {
      for (T& value : values) value = otherwise;
    } else if (A::width > 1 && dtypes[v] == dtype_of<T>) {
      load_pack<T>(values, data[v], dtypes[v], place[v - 2]);
    } else {
      read<A>(values, v, place[v - 2]);
    }
  }

 private:
  static Walk<whole + 2> walk_rows(const std::array<View, count>& views, int row_dims_from) {
    std::array<View, whole + 2> parts;
    std::array<const View*, whole + 2> pointers;
    for (size_t v = 0; v < whole + 2; ++v) {
      parts[v] = dimensions(views[v], 0, row_dims_from);
      pointers[v] = &parts[v];
    }
    return Walk<whole + 2>(pointers);
  }
  static Walk<whole + per_column> walk_columns(const std::array<View, count>& views, int from) {
    std::array<View, whole + per_column> parts;
    std::array<const View*, whole + per_column> pointers;
    for (size_t v = 0; v < whole + per_column; ++v) {
      const View& view = views[v < whole ? v : v + 2];
      parts[v] = v < whole ? dimensions(view, from, view.shape.dim()) : view;
      pointers[v] = &parts[v];
    }
    return Walk<whole + per_column>(pointers);
  }
  bool can_pack() const {
    const int width = pack_size(dtypes[0]);
    bool fits = columns.dims == 1;
    for (int v = 0; v < count; ++v) {
      if (data[v] == nullptr || v == whole || v == whole + 1) continue;
      const bool parameter = v > whole;
      fits &= dtypes[v] == dtypes[0] || (parameter && dtypes[v] == compute_type(dtypes[0]));
      fits &= is_aligned(data[v]) && has_packs(columns, parameter ? v - 2 : v, width);
      fits &= parameter || starts_packs(rows, v, width);
    }
    return fits;
  }
};

}  // namespace mezzo::cuda
