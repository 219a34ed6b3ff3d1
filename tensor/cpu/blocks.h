// Blocks of rows of the matrices in a batch, as operands and results of products of tiles.
#pragma once

#include <algorithm>
#include <utility>

#include "tensor/cpu/matrices.h"
#include "tensor/cpu/runs.h"
#include "tensor/cpu/scratch.h"
#include "tensor/cpu/tile.h"

namespace mezzo::cpu {

/// A block of rows, a left operand or a result: in scratch memory, or those of a view where they lie.
template <class T>
class Block {
 public:
  Block(int64_t most_rows, int64_t columns)
      : columns_(columns),
        memory_(static_cast<size_t>(Tile<T>::size_in_rows(most_rows, columns)) * sizeof(T)),
        tile_(own()) {}

  const Tile<T>& tile() const { return tile_; }
  T* row(int64_t i) const { return tile_.at(i, 0); }
  int64_t columns() const { return columns_; }
  /// Rows [first, rows) and those that fill up a tile = 0.
  void clear(int64_t first, int64_t rows) const {
    for (int64_t i = first; i < Tile<T>::padded_rows(rows); ++i)
      std::fill_n(row(i), Tile<T>::panels(columns_) * Tile<T>::kWidth, T(0));
  }
  void scale_row(int64_t i, T factor) const {
    T* x = row(i);
#pragma omp simd
    for (int64_t e = 0; e < columns_; ++e) x[e] *= factor;
  }

  /// From now on rows [first, first + rows) of matrix `batch` of a view, to be read: where they lie if they
  /// are whole blocks of T, else a copy.
  void read(const View& view, int64_t batch, int64_t first, int64_t rows) {
    const int64_t offset = offset_of(view, batch, first);
    tile_ = in_place(view, offset, rows);
    if (tile_.data) return;
    tile_ = own();
    for (int64_t i = 0; i < rows; ++i)
      load_run(row(i), address(view, offset + i * stride_at(view, 2)), view.dtype, stride_at(view, 1),
               columns_);
  }
  /// The same times a factor, in memory of its own.
  void read_scaled(const View& view, int64_t batch, int64_t first, int64_t rows, double factor) {
    read(view, batch, first, rows);
    const Tile<T> from = std::exchange(tile_, own());
    for (int64_t i = 0; i < rows; ++i) {
      const T* x = from.at(i, 0);
      T* to = row(i);
#pragma omp simd
      for (int64_t e = 0; e < columns_; ++e) to[e] = x[e] * static_cast<T>(factor);
    }
  }

  /// From now on a result, which finish() brings to rows [first, first + rows) of matrix `batch` of a view.
  void write(const View& view, int64_t batch, int64_t first, int64_t rows) {
    tile_ = columns_ % Tile<T>::kWidth == 0 ? in_place(view, offset_of(view, batch, first), rows) : Tile<T>{};
    if (!tile_.data) tile_ = own();
  }
  void finish(const View& view, int64_t batch, int64_t first, int64_t rows) const {
    if (tile_.data != memory_.template as<T>()) return;
    const int64_t offset = offset_of(view, batch, first);
    for (int64_t i = 0; i < rows; ++i)
      store_run(address(view, offset + i * stride_at(view, 2)), view.dtype, stride_at(view, 1), row(i),
                columns_);
  }

 private:
  Tile<T> own() const { return Tile<T>::in_rows(memory_.template as<T>(), columns_); }
  Tile<T> in_place(const View& view, int64_t offset, int64_t rows) const {
    return Tile<T>::in_place(view, offset, stride_at(view, 2), stride_at(view, 1), rows, columns_);
  }

  int64_t columns_;
  Scratch memory_;
  Tile<T> tile_;
};

/// A right operand: blocks of rows in panels, as they are or transposed.
template <class T>
class Packed {
 public:
  Packed(int64_t rows, int64_t columns)
      : memory_(static_cast<size_t>(Tile<T>::size_in_panels(rows, columns)) * sizeof(T)),
        tile_(Tile<T>::in_panels(memory_.template as<T>(), rows, columns)) {}

  const Tile<T>& tile() const { return tile_; }
  /// `columns` columns from `first` on, where a panel begins.
  Tile<T> columns_from(int64_t first, int64_t columns) const {
    return {tile_.at(0, first / Tile<T>::kWidth), tile_.row_stride, tile_.panel_stride, columns};
  }
  /// Rows from `first` on = rows of a block.
  void put_rows(int64_t first, const Block<T>& block, int64_t rows) const {
    for (int64_t i = 0; i < rows; ++i) tile_.put(first + i, block.row(i));
  }
  /// Columns from `first` on = rows of a block.
  void put_columns(int64_t first, const Block<T>& block, int64_t rows) const {
    put_transposed(columns_from(first, rows), block.row(0), block.tile().row_stride, block.columns(), 0,
                   Tile<T>::panels(rows));
  }

 private:
  Scratch memory_;
  Tile<T> tile_;
};

}  // namespace mezzo::cpu
