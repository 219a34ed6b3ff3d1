// Sizes and strides: a vector of at most eight integers without an allocation.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <span>
#include <string>
#include <vector>

namespace mezzo {

/// Sizes of a tensor's dimensions, or its strides (in elements). At most `max_dims`; more throws Error.
class Shape {
 public:
  static constexpr int max_dims = 8;

  Shape() = default;
  Shape(std::initializer_list<int64_t> sizes) : Shape(std::span(sizes.begin(), sizes.size())) {}
  Shape(const std::vector<int64_t>& sizes) : Shape(std::span<const int64_t>(sizes)) {}
  explicit Shape(std::span<const int64_t> sizes);
  /// `dims` entries of `value`.
  static Shape filled(int dims, int64_t value);

  int dim() const { return dims_; }
  bool empty() const { return dims_ == 0; }
  int64_t& operator[](int i) { return sizes_[static_cast<size_t>(i)]; }
  int64_t operator[](int i) const { return sizes_[static_cast<size_t>(i)]; }
  int64_t* begin() { return sizes_.data(); }
  int64_t* end() { return sizes_.data() + dims_; }
  const int64_t* begin() const { return sizes_.data(); }
  const int64_t* end() const { return sizes_.data() + dims_; }
  void push_back(int64_t size);
  void insert(int at, int64_t size);
  void erase(int at);

  /// Product of the sizes; 1 for a 0-d shape, the largest number for a product beyond it.
  int64_t numel() const {
    int64_t count = 1;
    bool overflows = false;
    for (int64_t size : *this) {
      if (size == 0) return 0;
      overflows |= __builtin_mul_overflow(count, size, &count);
    }
    return overflows ? std::numeric_limits<int64_t>::max() : count;
  }
  bool operator==(const Shape& other) const {
    bool equal = dims_ == other.dims_;
    for (int d = 0; equal && d < dims_; ++d) equal = (*this)[d] == other[d];
    return equal;
  }

 private:
  std::array<int64_t, max_dims> sizes_;  // of which the first dims_ are set
  int dims_ = 0;
};

/// Height and width; one number stands for both.
struct Size2 {
  int64_t height, width;
  Size2(int64_t both) : height(both), width(both) {}
  Size2(int64_t height, int64_t width) : height(height), width(width) {}
  bool operator==(const Size2&) const = default;
};

/// `[8, 3, 32, 32]`, as in every message.
std::string to_string(const Shape& shape);

/// Strides of a dense row-major tensor.
Shape contiguous_strides(const Shape& shape);
/// Strides of a dense [N, C, H, W] tensor whose memory runs N, H, W, C.
Shape channels_last_strides(const Shape& shape);
/// True if the strides reach every element once with no gaps, in whatever order of dimensions.
bool is_dense(const Shape& shape, const Shape& strides);

/// Shape to which both broadcast by NumPy's rule (from the last dimension, 1 stretches); false if they do
/// not.
bool broadcast(const Shape& a, const Shape& b, Shape& result);

}  // namespace mezzo
