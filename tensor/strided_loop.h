// One loop nest over several operands of one shape, with its dimensions merged and ordered for memory.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>

#include "tensor/kernels.h"

namespace mezzo {

/// Walks the elements of views of one shape together. Dimensions of size 1 are dropped, the rest ordered by
/// the first view's strides (the output's, so that writing is sequential) and merged where every view allows
/// it: dense operands of one layout, whatever it is, become a single run.
class StridedLoop {
 public:
  static constexpr int max_views = 6;
  using Offsets = std::array<int64_t, max_views>;

  explicit StridedLoop(std::span<const View* const> views) : views_(static_cast<int>(views.size())) {
    const Shape& shape = views[0]->shape;
    std::array<int, Shape::max_dims> order{};
    int dims = 0;
    for (int d = 0; d < shape.dim(); ++d) {
      if (shape[d] == 1) continue;
      auto at = static_cast<size_t>(dims++);  // insertion sort: there are few, and std::stable_sort allocates
      for (; at > 0 && views[0]->strides[order[at - 1]] < views[0]->strides[d]; --at)
        order[at] = order[at - 1];
      order[at] = d;
    }
    for (int i = 0; i < dims; ++i) {
      const int d = order[static_cast<size_t>(i)];
      size_ *= shape[d];
      if (dims_ > 0 && merges(views, d)) {
        sizes_[static_cast<size_t>(dims_ - 1)] *= shape[d];
      } else {
        sizes_[static_cast<size_t>(dims_++)] = shape[d];
      }
      for (size_t v = 0; v < views.size(); ++v) {
        strides_[static_cast<size_t>(dims_ - 1)][v] = views[v]->given() ? views[v]->strides[d] : 0;
      }
    }
    if (dims_ == 0) sizes_[0] = 1, dims_ = 1;  // 0-d: one run of one element
  }

  int64_t size() const { return size_; }
  /// Dimensions that are left, at least one; the last is the innermost.
  int dims() const { return dims_; }
  int64_t size(int d) const { return sizes_[static_cast<size_t>(d)]; }
  /// Stride of view v along dimension d.
  int64_t stride(int d, int v) const { return strides_[static_cast<size_t>(d)][static_cast<size_t>(v)]; }
  /// Elements of a whole run: the innermost dimension, merged.
  int64_t inner_size() const { return size(dims_ - 1); }
  /// Stride of view v along a run.
  int64_t stride(int v) const { return stride(dims_ - 1, v); }

  /// Calls f(offsets, n) for each run of n elements along the innermost dimension inside [begin, end) of the
  /// walk.
  template <class F>
  void for_runs(int64_t begin, int64_t end, F&& f) const {
    std::array<int64_t, Shape::max_dims> index{};
    Offsets offsets{};
    const auto inner = static_cast<size_t>(dims_ - 1);
    int64_t rest = begin;
    for (size_t d = inner + 1; d-- > 0;) {
      index[d] = rest % sizes_[d];
      rest /= sizes_[d];
      advance(offsets, d, index[d]);
    }
    while (begin < end) {
      const int64_t n = std::min(sizes_[inner] - index[inner], end - begin);
      f(offsets, n);
      begin += n;
      advance(offsets, inner, -index[inner]);
      index[inner] = 0;
      for (size_t d = inner; d-- > 0;) {
        advance(offsets, d, 1);
        if (++index[d] < sizes_[d]) break;
        advance(offsets, d, -sizes_[d]);
        index[d] = 0;
      }
    }
  }

 private:
  bool merges(std::span<const View* const> views, int d) const {
    const auto outer = static_cast<size_t>(dims_ - 1);
    for (size_t v = 0; v < views.size(); ++v) {
      if (views[v]->given() && strides_[outer][v] != views[v]->strides[d] * views[0]->shape[d]) return false;
    }
    return true;
  }

  void advance(Offsets& offsets, size_t d, int64_t steps) const {
    for (size_t v = 0; v < static_cast<size_t>(views_); ++v) offsets[v] += strides_[d][v] * steps;
  }

  int views_, dims_ = 0;
  int64_t size_ = 1;
  std::array<int64_t, Shape::max_dims> sizes_{};
  std::array<Offsets, Shape::max_dims> strides_{};
};

}  // namespace mezzo
