// Products of tiles, by one thread, out of the cache: what the fused kernels multiply with. A library's call
// for each tile costs its packing again and again; here operands are packed as they are made.
//
// A tile is a matrix in panels of kWidth columns, the last one filled up with zeros. The right operand lies
// panel by panel, each row by row, as it is read. Of the left operand, rows are read term by term: it lies
// row by row, in memory of ours an odd number of vectors apart, since rows a power of two apart would share a
// few sets of the cache, or where a tensor has it.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "tensor/cpu/vec.h"

namespace mezzo::cpu {

template <class T>
struct Tile {
  using Packet = typename Vec<T>::Packet;
  static constexpr int64_t kVectors = 2;
  static constexpr int64_t kWidth = kVectors * Vec<T>::size;
  /// Rows of a block of sums: with 32 registers 16 of them hold sums, with 16 registers 8.
  static constexpr int64_t kRows = sizeof(Packet) == 64 ? 8 : 4;

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

  T* data;
  int64_t row_stride, panel_stride;  ///< elements to the next row, to the next panel
  int64_t columns;
  T* at(int64_t row, int64_t panel) const { return data + panel * panel_stride + row * row_stride; }

  /// Row `row` = line[columns].
  void put(int64_t row, const T* line) const {
    int64_t c = 0;
    for (; c + kWidth <= columns; c += kWidth) std::copy_n(line + c, kWidth, at(row, c / kWidth));
    if (c == columns) return;
    T* to = at(row, c / kWidth);
    std::fill(std::copy(line + c, line + columns, to), to + kWidth, T(0));
  }
};

/// Panels [first, last) of tile = matrixᵀ, for a matrix [tile.columns, rows] whose rows are `stride` apart.
template <class T>
void put_transposed(const Tile<T>& tile, const T* matrix, int64_t stride, int64_t rows, int64_t first,
                    int64_t last) {
  constexpr int64_t W = Tile<T>::kWidth;
  constexpr int kLanes = Vec<T>::size;
  for (int64_t p = first; p < last; ++p) {
    const int64_t width = std::min(W, tile.columns - p * W);
    const T* from = matrix + p * W * stride;
    int64_t k = 0;
    for (; k + kLanes <= rows && width == W; k += kLanes) {
      for (int64_t j = 0; j < W; j += kLanes) {
        ei::PacketBlock<typename Vec<T>::Packet, kLanes> square;
        for (int r = 0; r < kLanes; ++r)
          square.packet[r] = ei::ploadu<typename Vec<T>::Packet>(from + (j + r) * stride + k);
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

/// One operand of a block of products: element (row r, term k) at data[r * row + k * term], but that after
/// `run` terms the next ones are `jump` further.
template <class T>
struct Terms {
  const T* data;
  int64_t row, term, run, jump;
};

/// Sums begin at start[kWidth] if it is given, and are added to what is there, or those below 0 become 0.
template <class T>
struct Finish {
  const T* start = nullptr;
  bool relu = false, accumulate = false;
};

/// out[r * out_row][0, kWidth) = sum over k < terms of a(r, k) * b[k][0, kWidth), for the kRows rows of a
/// block.
template <class T>
void multiply_block(T* out, int64_t out_row, const Terms<T>& a, const T* b, int64_t terms,
                    const Finish<T>& finish) {
  using Packet = typename Vec<T>::Packet;
  constexpr int kRows = Tile<T>::kRows, kVectors = Tile<T>::kVectors, kLanes = Vec<T>::size;
  // Unrolled by request: else the sums live in memory.
  Packet sums[kRows][kVectors], start[kVectors];
  for (int v = 0; v < kVectors; ++v)
    start[v] = finish.start ? ei::ploadu<Packet>(finish.start + v * kLanes) : ei::pset1<Packet>(T(0));
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) sums[r][v] = start[v];
  const T* column = a.data;
  for (int64_t first = 0; first < terms; first += a.run, column += a.jump) {
    const T* element = column;
    for (int64_t k = std::min(a.run, terms - first); k > 0; --k, element += a.term, b += Tile<T>::kWidth) {
      Packet right[kVectors];
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) right[v] = ei::ploadu<Packet>(b + v * kLanes);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const Packet left = ei::pset1<Packet>(element[r * a.row]);
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) sums[r][v] = ei::pmadd(left, right[v], sums[r][v]);
      }
    }
  }
  const Packet zero = ei::pset1<Packet>(T(0));
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      T* to = out + r * out_row + v * kLanes;
      Packet sum = sums[r][v];
      if (finish.accumulate) sum = ei::padd(sum, ei::ploadu<Packet>(to));
      if (finish.relu) sum = ei::pselect(ei::pcmp_lt(sum, zero), zero, sum);  // NaN stays
      ei::pstoreu(to, sum);
    }
  }
}

/// Memory that will be read after some products, brought towards the cache while they run, a few lines after
/// each block: products leave the memory idle, and what comes after them waits for it. Saves 3 to 5 % of a
/// float32 training step.
class Ahead {
 public:
  void add(const void* from, int64_t bytes) {
    ranges_[count_++] = {static_cast<const std::byte*>(from), static_cast<const std::byte*>(from) + bytes};
  }
  void step() {
    if (count_ == 0) return;
    auto& [from, end] = ranges_[count_ - 1];
    for (int64_t i = 0; i < kBytes; i += kLine) __builtin_prefetch(from + i, 0, 2);
    from += kBytes;
    if (from >= end) --count_;
  }

 private:
  static constexpr int64_t kLine = 64, kBytes = 12 * kLine;
  struct Range {
    const std::byte *from, *end;
  };
  std::array<Range, 3> ranges_;
  size_t count_ = 0;
};

/// out[rows, N] = a[rows, K] b[K, N], from start[N, filled up] on if it is given.
template <class T>
void multiply(const Tile<T>& out, const Tile<T>& a, const Tile<T>& b, int64_t rows, const Finish<T>& finish,
              Ahead& ahead) {
  constexpr int64_t W = Tile<T>::kWidth;
  const int64_t run = a.panel_stride == W ? a.columns : W;
  for (int64_t p = 0; p < Tile<T>::panels(out.columns); ++p) {
    Finish<T> of_panel = finish;
    if (finish.start) of_panel.start += p * W;
    for (int64_t i = 0; i < rows; i += Tile<T>::kRows) {
      multiply_block(out.at(i, p), out.row_stride, {a.at(i, 0), a.row_stride, 1, run, a.panel_stride},
                     b.at(0, p), a.columns, of_panel);
      ahead.step();
    }
  }
}

/// out[M, N] (+)= a[rows, M]ᵀ b[rows, N].
template <class T>
void multiply_transposed(const Tile<T>& out, const Tile<T>& a, const Tile<T>& b, int64_t rows,
                         bool accumulate, Ahead& ahead) {
  constexpr int64_t W = Tile<T>::kWidth;
  for (int64_t p = 0; p < Tile<T>::panels(out.columns); ++p)
    for (int64_t m = 0; m < a.columns; m += Tile<T>::kRows) {
      multiply_block(out.at(m, p), out.row_stride, {a.at(0, m / W) + m % W, 1, a.row_stride, rows, 0},
                     b.at(0, p), rows, {.accumulate = accumulate});
      ahead.step();
    }
}

}  // namespace mezzo::cpu
