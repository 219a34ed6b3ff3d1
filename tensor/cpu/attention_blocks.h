// Operands of attention by blocks of queries and keys: rows of matrices in scratch memory, and packed.
#pragma once

#include <algorithm>

#include "tensor/cpu/ahead.h"
#include "tensor/cpu/runs.h"
#include "tensor/cpu/scratch.h"
#include "tensor/cpu/tile_product.h"

namespace mezzo::cpu {

/// Most of a block: with 64 elements each, 200 KiB of float.
inline constexpr int64_t kQueries = 64, kKeys = 128;

inline int64_t size_at(const View& view, int from_end) { return view.shape[view.shape.dim() - from_end]; }

/// Product of all dimensions but the last two.
inline int64_t batches_of(const View& view) {
  int64_t batches = 1;
  for (int d = 0; d < view.shape.dim() - 2; ++d) batches *= view.shape[d];
  return batches;
}

/// A block of rows in scratch memory, a left operand or a result of products.
template <class T>
class Block {
 public:
  Block(int64_t most_rows, int64_t columns)
      : columns_(columns),
        size_(Tile<T>::size_in_rows(most_rows, columns)),
        memory_(static_cast<size_t>(size_) * sizeof(T)) {}

  Tile<T> tile() const { return Tile<T>::in_rows(memory_.template as<T>(), columns_); }
  /// Rows from `first` on.
  Tile<T> rows_from(int64_t first) const {
    Tile<T> rows = tile();
    rows.data = row(first);
    return rows;
  }
  T* row(int64_t i) const { return tile().at(i, 0); }
  int64_t columns() const { return columns_; }
  void fill(T value) const { std::fill_n(row(0), size_, value); }
  void scale(int64_t rows, double factor) const {
    for (int64_t i = 0; i < rows; ++i) {
      T* x = row(i);
#pragma omp simd
      for (int64_t e = 0; e < columns_; ++e) x[e] *= static_cast<T>(factor);
    }
  }

  /// Rows [first, first + rows) of matrix `batch` of a view.
  void read(const View& view, int64_t batch, int64_t first, int64_t rows) const {
    for (int64_t i = 0; i < rows; ++i)
      load_run(row(i), address(view, offset(view, batch, first + i)), view.dtype, stride(view, 1), columns_);
  }
  /// The first rows of a matrix that read() will want.
  static void announce(Ahead& ahead, const View& view, int64_t batch) {
    if (stride(view, 1) != 1) return;
    const auto size = static_cast<int64_t>(size_of(view.dtype));
    ahead.add_rows(address(view, offset(view, batch, 0)), size_at(view, 1) * size, stride(view, 2) * size,
                   std::min(kKeys, size_at(view, 2)));
  }
  void write(const View& view, int64_t batch, int64_t first, int64_t rows) const {
    for (int64_t i = 0; i < rows; ++i)
      store_run(address(view, offset(view, batch, first + i)), view.dtype, stride(view, 1), row(i), columns_);
  }

  /// Position of row `row` of matrix `batch`.
  static int64_t offset(const View& view, int64_t batch, int64_t row) {
    int64_t offset = row * stride(view, 2);
    for (int d = view.shape.dim() - 3; d >= 0; --d) {
      offset += batch % view.shape[d] * view.strides[d];
      batch /= view.shape[d];
    }
    return offset;
  }
  static int64_t stride(const View& view, int from_end) {
    return view.strides[view.strides.dim() - from_end];
  }

 private:
  int64_t columns_, size_;
  Scratch memory_;
};

/// A block as a right operand: in panels, as it is or transposed.
template <class T>
class Packed {
 public:
  Packed(int64_t most_rows, int64_t most_columns)
      : memory_(static_cast<size_t>(Tile<T>::size_in_panels(most_rows, most_columns)) * sizeof(T)) {}

  Tile<T> rows(const Block<T>& block, int64_t rows) const {
    const auto tile = Tile<T>::in_panels(memory_.template as<T>(), rows, block.columns());
    for (int64_t i = 0; i < rows; ++i) tile.put(i, block.row(i));
    return tile;
  }
  Tile<T> transposed(const Block<T>& block, int64_t rows) const {
    const auto tile = Tile<T>::in_panels(memory_.template as<T>(), block.columns(), rows);
    put_transposed(tile, block.row(0), block.tile().row_stride, block.columns(), 0, Tile<T>::panels(rows));
    return tile;
  }

 private:
  Scratch memory_;
};

/// A block of keys or values, packed for products, which stays from one block of queries to the next.
template <class T>
class Resident {
 public:
  explicit Resident(const View& view)
      : view_(view),
        block_(kKeys, size_at(view, 1)),
        rows_(kKeys, size_at(view, 1)),
        transposed_(size_at(view, 1), kKeys) {}

  Tile<T> rows(int64_t batch, int64_t first) {
    take(batch, first);
    return straight_.data ? straight_ : straight_ = rows_.rows(block_, count_);
  }
  Tile<T> transposed(int64_t batch, int64_t first) {
    take(batch, first);
    return turned_.data ? turned_ : turned_ = transposed_.transposed(block_, count_);
  }

 private:
  void take(int64_t batch, int64_t first) {
    if (batch == batch_ && first == first_) return;
    batch_ = batch, first_ = first, count_ = std::min(kKeys, size_at(view_, 2) - first);
    block_.read(view_, batch, first, count_);
    straight_ = turned_ = {};
  }

  const View& view_;
  const Block<T> block_;
  const Packed<T> rows_, transposed_;
  Tile<T> straight_{}, turned_{};  ///< without data until they are asked for
  int64_t batch_ = -1, first_ = -1, count_ = 0;
};

}  // namespace mezzo::cpu
