// A tile: a matrix in panels of kWidth columns, the last one filled up with zeros; an operand or result of
// products (tile_product.h). The right operand lies panel by panel, each row by row, as it is read. The left
// one is read by rows: it lies where a tensor has it, or in memory of ours an odd number of vectors apart,
// since powers of two would share sets of the cache.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tensor/cpu/runs.h"
#include "tensor/cpu/vec.h"

namespace mezzo::cpu {

template <class T>
struct Tile {
  using Packet = typename Vec<T>::Packet;
  static constexpr int64_t kVectors = 2;
  static constexpr int64_t kWidth = kVectors * Vec<T>::size;
  /// Of blocks: most panels, and what rows are filled up to, those of one panel where two are the most. 16 to
  /// 24 of 32 registers hold sums, or 8 to 12 of 16.
  static constexpr int64_t kPanels = sizeof(Packet) == 64 ? 2 : 1, kRows = kPanels == 2 ? 8 : 4;

  static int64_t panels(int64_t columns) { return (columns + kWidth - 1) / kWidth; }
  static int64_t padded_rows(int64_t rows) { return (rows + kRows - 1) / kRows * kRows; }
  static int64_t row_length(int64_t columns) { return panels(columns) * kWidth + Vec<T>::size; }
  /// Elements of a tile.
  static int64_t size_in_panels(int64_t rows, int64_t columns) {
    return padded_rows(rows) * kWidth * panels(columns);
  }
  static int64_t size_in_rows(int64_t rows, int64_t columns) {
    return padded_rows(rows) * row_length(columns);
  }

  static Tile in_panels(T* data, int64_t rows, int64_t columns) {
    return {data, kWidth, padded_rows(rows) * kWidth, columns};
  }
  static Tile in_rows(T* data, int64_t columns) { return {data, row_length(columns), kWidth, columns}; }
  /// `rows` rows of a view where they lie, the first at `offset`, `row_stride` apart; without data if they
  /// are not whole blocks of T.
  static Tile in_place(const View& view, int64_t offset, int64_t row_stride, int64_t stride, int64_t rows,
                       int64_t columns) {
    T* data = rows % kRows == 0 ? memory_run<T>(view, offset, stride, columns) : nullptr;
    return {data, row_stride, kWidth, columns};
  }

  /// Rows [row, row + rows) of a matrix where they lie; without data if it is not given, too.
  static Tile rows_of(const View& matrix, int64_t row, int64_t rows) {
    if (!matrix.given()) return {};
    return in_place(matrix, row * matrix.strides[0], matrix.strides[0], matrix.strides[1], rows,
                    matrix.shape[1]);
  }

  T* data;
  int64_t row_stride, panel_stride;  ///< elements to the next row, to the next panel
  int64_t columns;
  T* at(int64_t row, int64_t panel) const { return data + panel * panel_stride + row * row_stride; }
  /// Without the rows before `first`.
  Tile rows_from(int64_t first) const { return {at(first, 0), row_stride, panel_stride, columns}; }

  /// Row `row` = line[columns].
  void put(int64_t row, const T* line) const {
    int64_t c = 0;
    for (; c + kWidth <= columns; c += kWidth)
      for (int64_t j = c; j < c + kWidth; j += Vec<T>::size)
        Vec<T>::load(line + j).store(at(row, c / kWidth) + j - c);
    if (c == columns) return;
    T* to = at(row, c / kWidth);
    std::fill(std::copy(line + c, line + columns, to), to + kWidth, T(0));
  }
};

/// Panels [first, last) of tile = matrixᵀ, for a matrix [tile.columns, rows] whose rows are `stride` apart.
template <class T>
void put_transposed(const Tile<T>& tile, const T* matrix, int64_t stride, int64_t rows, int64_t first,
                    int64_t last) {
  using Packet = typename Vec<T>::Packet;
  constexpr int64_t W = Tile<T>::kWidth;
  constexpr int kLanes = Vec<T>::size;
  for (int64_t p = first; p < last; ++p) {
    const int64_t width = std::min(W, tile.columns - p * W);
    const T* from = matrix + p * W * stride;
    int64_t k = 0;
    for (; k + kLanes <= rows && width == W; k += kLanes) {
      for (int64_t j = 0; j < W; j += kLanes) {
        ei::PacketBlock<Packet, kLanes> square;
        for (int r = 0; r < kLanes; ++r) square.packet[r] = ei::ploadu<Packet>(from + (j + r) * stride + k);
        ei::ptranspose(square);
        for (int r = 0; r < kLanes; ++r) ei::pstoreu(tile.at(k + r, p) + j, square.packet[r]);
      }
    }
    for (; k < rows; ++k) {
      T* to = tile.at(k, p);
      for (int64_t j = 0; j < width; ++j) to[j] = from[j * stride + k];
      std::fill(to + width, to + W, T(0));
    }
  }
}

}  // namespace mezzo::cpu
