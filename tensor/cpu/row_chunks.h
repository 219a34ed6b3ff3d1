// Kernels over the rows of matrices, a tile of rows at a time: how rows are read, cut for threads, and what
// each part of the work has of its own.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "tensor/cpu/channels.h"
#include "tensor/cpu/parallel.h"
#include "tensor/cpu/runs.h"
#include "tensor/cpu/scratch.h"

namespace mezzo::cpu {

/// The rows of a matrix as arrays of T.
template <class T>
struct Rows {
  const View& view;

  int64_t columns() const { return view.shape[1]; }
  const T* read(int64_t row, T* buffer) const {
    return read_run(view, row * view.strides[0], view.strides[1], columns(), buffer);
  }
  T* write(int64_t row, T* buffer) const {
    return write_run(view, row * view.strides[0], view.strides[1], columns(), buffer);
  }
  void finish(int64_t row, const T* run) const {
    write_back(view, row * view.strides[0], view.strides[1], columns(), run);
  }
};

/// How P rows are cut: into chunks that begin at tiles.
struct Chunks {
  int64_t rows, tile_rows, count;

  Chunks(int64_t rows, int64_t tile_rows, int64_t most) : rows(rows), tile_rows(tile_rows) {
    count = std::min(most, tiles());
  }
  int64_t tiles() const { return (rows + tile_rows - 1) / tile_rows; }
  /// First row of a chunk; of chunk `count`: the end.
  int64_t begin(int64_t chunk) const { return std::min(rows, tiles() * chunk / count * tile_rows); }

  /// f(chunk, first row, number of rows, part) for the tiles of all chunks, chunks in parallel.
  template <class F>
  void for_tiles(int64_t terms_of_row, F&& f) const {
    parallel_for(count, grain(terms_of_row), [&](int64_t first, int64_t last, int64_t part) {
      for (int64_t chunk = first; chunk < last; ++chunk)
        for (int64_t row = begin(chunk); row < begin(chunk + 1); row += tile_rows)
          f(chunk, row, std::min(tile_rows, begin(chunk + 1) - row), part);
    });
  }
  int64_t parts(int64_t terms_of_row) const { return parallel_parts(count, grain(terms_of_row)); }

 private:
  /// Chunks for which waking another thread pays.
  int64_t grain(int64_t terms_of_row) const {
    constexpr int64_t kTerms = 1 << 16;
    return 1 + kTerms / std::max<int64_t>(1, rows / std::max<int64_t>(1, count) * terms_of_row);
  }
};

/// Memory of a part of the work: the products' tiles and some lines.
template <class Products>
class Workspaces {
 public:
  using T = typename Products::Real;
  static constexpr int64_t kLines = 3;

  Workspaces(const Products& products, int64_t parts, int64_t in, int64_t out)
      : line_((std::max(in, out) + 15) / 16 * 16),
        bytes_(products.workspace_bytes() + static_cast<size_t>(kLines * line_) * sizeof(T)),
        scratch_(static_cast<size_t>(parts) * bytes_) {}

  std::byte* products(int64_t part) const {
    return scratch_.as<std::byte>() + static_cast<size_t>(part) * bytes_;
  }
  T* line(int64_t part, int64_t i) const {
    return reinterpret_cast<T*>(products(part + 1)) - (i + 1) * line_;
  }

 private:
  int64_t line_;
  size_t bytes_;
  Scratch scratch_;
};

/// Two sums for each column, of each chunk: in T within a tile, in double above.
class ChunkSums {
 public:
  ChunkSums(int64_t chunks, int64_t columns)
      : chunks_(chunks), columns_(columns), values_(static_cast<size_t>(2 * chunks * columns)) {}
  Pair at(int64_t chunk) {
    double* first = values_.data() + 2 * chunk * columns_;
    return {first, first + columns_};
  }
  std::span<const double> first() const { return {values_.data(), static_cast<size_t>(columns_)}; }
  std::span<const double> second() const {
    return {values_.data() + columns_, static_cast<size_t>(columns_)};
  }
  /// Chunk 0 becomes the sum of all.
  void add_up() {
    for (int64_t i = 1; i < chunks_; ++i)
      for (int64_t c = 0; c < 2 * columns_; ++c)
        values_[static_cast<size_t>(c)] += values_[static_cast<size_t>(2 * i * columns_ + c)];
  }

 private:
  int64_t chunks_, columns_;
  std::vector<double> values_;
};

template <class T>
void move_into(double* total, std::vector<T>& sums) {
  for (size_t c = 0; c < sums.size(); ++c) total[c] += static_cast<double>(std::exchange(sums[c], T(0)));
}

}  // namespace mezzo::cpu
