// Sums over the values of each channel: what the passes of batch normalisation share.
#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include "tensor/cpu/channels.h"
#include "tensor/cpu/columns.h"

namespace mezzo::cpu {

/// The channels are the columns, all other dimensions the rows.
inline Columns channels_of(std::span<const View* const> views) {
  return Columns(views, static_cast<int>(views.size()), [](int d) { return d != 1; });
}

/// A strip's numbers per channel, repeated for each lane.
template <class T>
struct Lanes {
  T value[kChunk];
  Lanes(const std::vector<T>& channels, const Columns& columns, int64_t strip) {
    const int64_t width = columns.width(strip);
    std::copy_n(channels.data() + columns.first_column(strip), width, value);
    repeat_lanes(value, columns.lanes(strip), width);
  }
};

/// The pairs of every block; block 0 becomes the whole's.
class Partial {
 public:
  explicit Partial(const Columns& columns)
      : channels_(columns.columns()), values_(static_cast<size_t>(2 * channels_ * columns.blocks())) {}

  Pair at(int64_t block, int64_t channel = 0) {
    double* first = values_.data() + 2 * block * channels_ + channel;
    return {first, first + channels_};
  }
  std::span<const double> first() const { return {values_.data(), static_cast<size_t>(channels_)}; }
  std::span<const double> second() const {
    return {values_.data() + channels_, static_cast<size_t>(channels_)};
  }

 private:
  int64_t channels_;
  std::vector<double> values_;
};

/// Two sums per lane, in T for a few dozen additions, then in double: so the error is that of a short sum.
template <class T>
class Sums {
 public:
  T first[kChunk], second[kChunk];

  explicit Sums(int64_t lanes) : lanes_(lanes) {
    std::fill_n(total_first_, lanes, 0.0);
    std::fill_n(total_second_, lanes, 0.0);
    clear();
  }
  /// Says that each lane has been added to `times` times.
  void added(int64_t times) {
    additions_ += times;
    if (additions_ >= kShort) spill();
  }
  /// The sums per column.
  void finish(int64_t width, Pair out) {
    spill();
    fold_lanes(total_first_, lanes_, width, std::plus<double>());
    fold_lanes(total_second_, lanes_, width, std::plus<double>());
    std::copy_n(total_first_, width, out.first);
    std::copy_n(total_second_, width, out.second);
  }

 private:
  static constexpr int64_t kShort = 32;

  void clear() {
    std::fill_n(first, lanes_, T(0));
    std::fill_n(second, lanes_, T(0));
    additions_ = 0;
  }
  void spill() {
    for (int64_t j = 0; j < lanes_; ++j) {
      total_first_[j] += static_cast<double>(first[j]);
      total_second_[j] += static_cast<double>(second[j]);
    }
    clear();
  }

  int64_t lanes_, additions_;
  double total_first_[kChunk], total_second_[kChunk];
};

}  // namespace mezzo::cpu
