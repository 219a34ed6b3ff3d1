// Fetching ahead of need.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace mezzo::cpu {

/// Memory that will be read after some products, brought towards the cache while they run, a few lines after
/// each block: products leave the memory idle, and what comes after them waits for it. Saves 3 to 5 % of a
/// float32 training step.
class Ahead {
 public:
  void add(const void* from, int64_t bytes) { add_rows(from, bytes, 0, 1); }
  /// `rows` pieces of memory, `stride` bytes apart.
  void add_rows(const void* from, int64_t bytes, int64_t stride, int64_t rows) {
    if (bytes > 0 && rows > 0)
      ranges_[count_++] = {static_cast<const std::byte*>(from), 0, bytes, stride, rows};
  }
  void step() {
    for (int64_t left = kBytes; left > 0 && count_ > 0;) {
      Range& range = ranges_[count_ - 1];
      const int64_t end = std::min(range.at + left, range.bytes);
      left -= end - range.at;
      for (; range.at < end; range.at += kLine) __builtin_prefetch(range.row + range.at, 0, 2);
      if (range.at < range.bytes) continue;
      range.at = 0;
      range.row += range.stride;
      if (--range.rows == 0) --count_;
    }
  }

 private:
  static constexpr int64_t kLine = 64, kBytes = 12 * kLine;
  struct Range {
    const std::byte* row;
    int64_t at, bytes, stride, rows;
  };
  std::array<Range, 5> ranges_;
  size_t count_ = 0;
};

}  // namespace mezzo::cpu
