// Views with memory of their own, in any layout, for tests that call kernels directly.
#pragma once

#include <array>
#include <cstddef>
#include <limits>
#include <random>
#include <string_view>
#include <vector>

#include "tensor/kernels.h"
#include "tensor/reference/element.h"

namespace mezzo {

/// How a view lies in memory: `channels_last` has dimension 1 innermost, `strided` leaves gaps everywhere,
/// `expanded` has a stride of 0 in dimension 0 (for operands alone).
enum class Layout { row_major, reversed, channels_last, strided, expanded };
inline constexpr std::array kResultLayouts{Layout::row_major, Layout::reversed, Layout::channels_last,
                                           Layout::strided};
inline constexpr std::array kLayouts{Layout::row_major, Layout::reversed, Layout::channels_last,
                                     Layout::strided, Layout::expanded};

inline std::string_view name_of(Layout layout) {
  constexpr std::string_view names[] = {"row-major", "reversed", "channels-last", "strided", "expanded"};
  return names[static_cast<size_t>(layout)];
}

/// Dimensions from the outermost in memory to the innermost.
inline std::vector<int> memory_order(int dims, Layout layout) {
  std::vector<int> order;
  for (int d = 0; d < dims; ++d) order.push_back(layout == Layout::reversed ? dims - 1 - d : d);
  if (layout == Layout::channels_last && dims > 1) {
    order.erase(order.begin() + 1);
    order.push_back(1);
  }
  return order;
}

/// A view and its memory, which begins as zeros.
class Elements {
 public:
  Elements(DType dtype, const Shape& shape, Layout layout = Layout::row_major)
      : shape_(shape), dtype_(dtype) {
    strides_ = Shape::filled(shape.dim(), 0);
    int64_t stride = layout == Layout::strided ? 2 : 1;
    const std::vector<int> order = memory_order(shape.dim(), layout);
    for (auto d = order.rbegin(); d != order.rend(); ++d) {
      if (layout == Layout::expanded && *d == 0) continue;
      strides_[*d] = stride;
      stride *= shape[*d] + (layout == Layout::strided ? 1 : 0);
    }
    memory_.resize(static_cast<size_t>(stride + 1) * size_of(dtype) + 64);
  }

  View view() { return {memory_.data(), dtype_, shape_, strides_}; }
  int64_t numel() const { return shape_.numel(); }
  DType dtype() const { return dtype_; }

  /// The i-th element in row-major order.
  double operator[](int64_t i) {
    const View all = view();
    return reference::load<double>(all, reference::offset_of(all, i));
  }
  void set(int64_t i, double value) { reference::store(view(), reference::offset_of(view(), i), value); }

  template <class F>
  Elements& fill(F&& value) {
    for (int64_t i = 0; i < numel(); ++i) set(i, static_cast<double>(value(i)));
    return *this;
  }
  Elements& fill(std::initializer_list<double> values) {
    int64_t i = 0;
    for (double value : values) set(i++, value);
    return *this;
  }
  /// Normal numbers.
  Elements& randomize(std::mt19937& random, double mean = 0, double std = 1) {
    std::normal_distribution<double> normal(mean, std);
    return fill([&](int64_t) { return normal(random); });
  }
  bool same_bits(const Elements& other) const { return memory_ == other.memory_; }

 private:
  Shape shape_, strides_;
  DType dtype_;
  std::vector<std::byte> memory_;
};

/// Distance of 1 from the next larger number of the dtype; 0 for integers.
inline double epsilon(DType dtype) {
  constexpr double values[kDTypes] = {0x1p-52, 0x1p-23, 0x1p-10, 0x1p-7, 0, 0, 0, 0};
  return values[static_cast<int>(dtype)];
}

/// Equal, both NaN, or within `tolerance`.
inline bool near(double a, double b, double tolerance) {
  return a == b || (std::isnan(a) && std::isnan(b)) || std::abs(a - b) <= tolerance;
}

}  // namespace mezzo
