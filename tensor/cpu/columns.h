// Tensors as matrices whose columns are treated alike: reduced, or scaled by one number each.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "tensor/cpu/parallel.h"
#include "tensor/cpu/runs.h"
#include "tensor/strided_loop.h"

namespace mezzo::cpu {

/// Some dimensions of views of one shape are rows, the others columns. Columns that lie side by side are
/// walked together, a strip of at most kChunk at a time (a channels-last tensor); else a strip is one column
/// (a row-major tensor). Either way a kernel sees pieces: arrays whose element j belongs to column j % width
/// of the strip.
///
/// The work is cut into blocks of rows of a strip, in a way that the shapes alone decide: results per block,
/// combined in order, have the same bits for any number of threads.
class Columns {
 public:
  using Offsets = StridedLoop::Offsets;  ///< or strides: an entry per view, in elements

  /// `is_row(d)` says it of dimension d. The first view's strides decide how the others are walked too.
  /// Pieces are made of the first `walked` views; the others have an element per column (and strides of 0
  /// along rows). No strip is wider than `widest`, at most kChunk.
  template <class IsRow>
  Columns(std::span<const View* const> views, int walked, IsRow&& is_row, int64_t widest = kChunk)
      : columns_(part(views, [&](int d) { return !is_row(d); })),
        rows_(part(views, is_row)),
        widest_(widest) {
    const int64_t side = columns_.inner_size(), length = rows_.inner_size();
    // Rows too short for vectors are crossed, though memory runs along them: they share cache lines.
    const bool together =
        rows_.size() == 1 || columns_.stride(0) < rows_.stride(0) || (length < 16 && side >= 16);
    side_ = together ? std::max<int64_t>(1, side) : 1;
    flat_ = length > 1 && is_flat(walked);
    // Rows of a few elements that do not follow one another would be pieces of their own.
    if (length > 1 && !flat_ && side_ < 16) side_ = 1, flat_ = true;
    width_ = std::min(side_, widest_);
    strips_abreast_ = (side_ + widest_ - 1) / widest_;
    block_rows_ = std::max(kBlockRows, kBlockElements / width_);
    for (int v = 0; v < walked; ++v)
      strides_[static_cast<size_t>(v)] = side_ > 1 ? columns_.stride(v) : rows_.stride(v);
  }

  int64_t rows() const { return rows_.size(); }
  int64_t columns() const { return columns_.size(); }
  int64_t blocks() const { return std::max<int64_t>(1, (rows() + block_rows_ - 1) / block_rows_); }
  int64_t rows_of(int64_t block) const { return std::min(block_rows_, rows() - block * block_rows_); }

  int64_t strips() const { return columns() / side_ * strips_abreast_; }
  int64_t width(int64_t strip) const { return std::min(widest_, side_ - strip % strips_abreast_ * widest_); }
  /// Number of the strip's first column, where columns are counted in the order of the walk.
  int64_t first_column(int64_t strip) const {
    return strip / strips_abreast_ * side_ + strip % strips_abreast_ * widest_;
  }
  /// Where the strip begins in each view.
  Offsets offsets(int64_t strip) const {
    Offsets result{};
    const int64_t column = first_column(strip);
    columns_.for_runs(column, column + 1, [&](const Offsets& at, int64_t) { result = at; });
    return result;
  }
  /// Distance of neighbouring columns of a strip in view v.
  int64_t column_stride(int v) const { return columns_.stride(v); }
  /// Distance of the rows in which pieces lie, in view v.
  int64_t row_stride(int v) const { return rows_.stride(v); }
  /// Distance of neighbouring elements of a piece in view v.
  int64_t stride(int v) const { return strides_[static_cast<size_t>(v)]; }

  /// Elements of a piece to take at once: a multiple of the strip's width, so that vectors are full and sums
  /// short.
  int64_t lanes(int64_t strip) const {
    const int64_t repeats = flat_ ? std::min(kLanes / width(strip), rows()) : 1;
    return width(strip) * std::max<int64_t>(1, repeats);
  }

  /// f(strip, block) for all of them, in parallel.
  template <class F>
  void for_blocks(F&& f) const {
    const int64_t elements = std::max<int64_t>(1, std::min(block_rows_, rows()) * width_);
    parallel_for(strips() * blocks(), 1 + kParallelElements / elements, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) f(i / blocks(), i % blocks());
    });
  }

  /// f(strip) for all of them, in parallel: for kernels that go through a strip's blocks one after the other.
  template <class F>
  void for_strips(F&& f) const {
    const int64_t elements = std::max<int64_t>(1, rows() * width_);
    parallel_for(strips(), 1 + kParallelElements / elements, [&](int64_t begin, int64_t end) {
      for (int64_t strip = begin; strip < end; ++strip) f(strip);
    });
  }

  /// Whether each strip is one line: a column by itself, of which neighbouring elements are stride(v) apart.
  bool are_lines() const { return side_ == 1 && rows_.dims() == 1; }

  /// f(offsets, n) for all lines, in parallel, n <= kChunk of them at a time that are column_stride(v) apart.
  template <class F>
  void for_lines(F&& f) const {
    const int64_t length = std::max<int64_t>(1, rows());
    parallel_for(columns(), 1 + kParallelElements / length, [&](int64_t begin, int64_t end) {
      for (; begin < end; begin += kChunk) columns_.for_runs(begin, std::min(end, begin + kChunk), f);
    });
  }

  /// f(offsets, n, row) for the pieces of a block in order: n <= kChunk elements, whole rows from number
  /// `row` on.
  template <class F>
  void for_pieces(int64_t strip, int64_t block, F&& f) const {
    const Offsets base = offsets(strip);
    const int64_t width = this->width(strip), most = flat_ ? kChunk / lanes(strip) * lanes(strip) / width : 1;
    if (rows() == 0) return;
    int64_t row = block * block_rows_;
    rows_.for_runs(row, row + rows_of(block), [&](Offsets at, int64_t run) {
      for (size_t v = 0; v < at.size(); ++v) at[v] += base[v];
      for (int64_t n; run > 0; run -= n, row += n) {
        n = std::min(most, run);
        f(at, n * width, row);
        for (int v = 0; v < StridedLoop::max_views; ++v) at[static_cast<size_t>(v)] += n * rows_.stride(v);
      }
    });
  }

 private:
  static constexpr int64_t kLanes = 128;
  static constexpr int64_t kBlockRows = 256, kBlockElements = 16384;

  template <class Takes>
  static StridedLoop part(std::span<const View* const> views, Takes&& takes) {
    std::array<View, StridedLoop::max_views> parts;
    std::array<const View*, StridedLoop::max_views> pointers;
    for (size_t v = 0; v < views.size(); ++v) {
      const View& view = *views[v];
      parts[v] = {view.data, view.dtype, {}, {}};
      pointers[v] = &parts[v];
      for (int d = 0; d < view.shape.dim(); ++d) {
        if (!takes(d)) continue;
        parts[v].shape.push_back(view.shape[d]);
        parts[v].strides.push_back(view.strides[d]);
      }
    }
    return StridedLoop(std::span<const View* const>(pointers.data(), views.size()));
  }

  /// Whether rows follow one another as the elements of a row do, in the first `walked` views.
  bool is_flat(int walked) const {
    if (side_ == 1) return true;
    bool flat = side_ <= widest_;
    for (int v = 0; v < walked; ++v) flat &= rows_.stride(v) == side_ * columns_.stride(v);
    return flat;
  }

  StridedLoop columns_, rows_;
  Offsets strides_{};
  bool flat_;      ///< rows follow one another as the elements of a row do, in every view
  int64_t side_;   ///< columns side by side
  int64_t width_;  ///< of the widest strip
  int64_t widest_;
  int64_t strips_abreast_, block_rows_;
};

/// Repeats values[0, width) over all lanes.
template <class T>
void repeat_lanes(T* values, int64_t count, int64_t width) {
  if (width == 1)
    std::fill_n(values, count, values[0]);
  else
    for (int64_t i = width; i < count; i += width) std::copy_n(values, width, values + i);
}

/// Merges the lanes of each column: lanes[0, width) become lanes[j] + lanes[j + width] + ..., with `merge`
/// for +.
template <class Acc, class Merge>
void fold_lanes(Acc* lanes, int64_t count, int64_t width, Merge&& merge) {
  for (int64_t repeats = count / width; repeats > 1;) {
    const int64_t half = (repeats + 1) / 2, n = (repeats - half) * width;
    for (int64_t j = 0; j < n; ++j) lanes[j] = merge(lanes[j], lanes[half * width + j]);
    repeats = half;
  }
}

}  // namespace mezzo::cpu
