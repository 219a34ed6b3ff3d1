// What tests share that compare a CUDA kernel with the reference one: both tables, and arrays that are on the
// host and on the device.
#pragma once

#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <limits>
#include <random>
#include <vector>

#include "cuda/context.h"
#include "tensor/kernels.h"
#include "tensor/reference/element.h"

namespace mezzo::cuda {

inline constexpr double inf = std::numeric_limits<double>::infinity();
inline constexpr DType kFloating[] = {float64, float32, float16, bfloat16};
inline constexpr DType kAll[] = {float64, float32, float16, bfloat16, int64, int32, uint8, bool_};

/// The kernels under test, and those that say what they must compute.
inline const Kernels& device_table() { return kernels(Device::Type::cuda); }
inline const Kernels& reference_table() { return kernels(Device::Type::reference); }

/// Elements of any layout, the same on both sides until kernels write to them. The memory goes on a little
/// behind the last one, which no kernel may change.
class Array {
 public:
  explicit Array(DType dtype, const Shape& shape, const Shape& strides, int64_t offset = 0)
      : view_{nullptr, dtype, shape, strides}, offset_(offset) {
    int64_t last = offset;
    for (int d = 0; d < shape.dim(); ++d) last += std::max<int64_t>(shape[d] - 1, 0) * strides[d];
    memory_.assign(static_cast<size_t>(last + 1 + kBehind) * size_of(dtype), std::byte{0x11});
    REQUIRE(cudaMalloc(&device_, memory_.size()) == cudaSuccess);
  }
  Array(DType dtype, const Shape& shape) : Array(dtype, shape, contiguous_strides(shape)) {}
  ~Array() { static_cast<void>(cudaFree(device_)); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  /// Element i, in row-major order, becomes value(i).
  template <class F>
  Array& fill(F&& value) {
    for (int64_t i = 0; i < view_.numel(); ++i) reference::set(host(), i, static_cast<double>(value(i)));
    return *this;
  }
  View host() const { return at(const_cast<std::byte*>(memory_.data())); }
  /// With what the host's side holds now.
  View to_device() const {
    copy(device_, memory_.data(), cudaMemcpyHostToDevice);
    return at(static_cast<std::byte*>(device_));
  }
  /// That of the device is the host's, up to the tolerance (relative above 1); NaN equals NaN. Nothing else
  /// has been written to.
  bool agrees(double tolerance = 0) const {
    std::vector<std::byte> found(memory_.size());
    copy(found.data(), device_, cudaMemcpyDeviceToHost);
    View result = at(found.data());
    int mistakes = 0;
    for (int64_t i = 0; i < view_.numel(); ++i) {
      const double wanted = reference::get(host(), i), got = reference::get(result, i);
      const bool same = wanted == got || (std::isnan(wanted) && std::isnan(got)) ||
                        std::abs(wanted - got) <= tolerance * std::max(1.0, std::abs(wanted));
      if (!same && mistakes++ < 3) MESSAGE("element ", i, " is ", got, " and should be ", wanted);
      reference::set(result, i, wanted);  // what is left to differ is no element
    }
    if (found != memory_) MESSAGE("memory that is no element has been changed");
    return mistakes == 0 && found == memory_;
  }
  const Shape& shape() const { return view_.shape; }

 private:
  static constexpr int64_t kBehind = 8;

  View at(std::byte* memory) const {
    View view = view_;
    view.data = memory + static_cast<size_t>(offset_) * size_of(view_.dtype);
    return view;
  }
  void copy(void* to, const void* from, cudaMemcpyKind kind) const {
    const cudaStream_t stream = context().stream();
    REQUIRE(cudaMemcpyAsync(to, from, memory_.size(), kind, stream) == cudaSuccess);
    REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  }

  View view_;
  int64_t offset_;
  std::vector<std::byte> memory_;
  void* device_ = nullptr;
};

/// Layouts that kernels must take: how the memory of a shape is walked.
enum class Layout { row_major, permuted, spread, shifted, expanded, channels_last };
/// Those of any shape.
inline constexpr Layout kLayouts[] = {Layout::row_major, Layout::permuted, Layout::spread, Layout::shifted,
                                      Layout::expanded};

/// Strides of `shape` in a layout: dimensions in reverse order, every second element, for what is only read
/// one element repeated along the first dimension, and for [N, C, ...] channels side by side.
inline Shape strides_of(const Shape& shape, Layout layout) {
  Shape strides = contiguous_strides(shape);
  if (layout == Layout::permuted) {
    int64_t step = 1;
    for (int d = 0; d < shape.dim(); ++d) {
      strides[d] = step;
      step *= std::max<int64_t>(shape[d], 1);
    }
  }
  if (layout == Layout::spread) {
    for (int64_t& stride : strides) stride *= 2;
  }
  if (layout == Layout::expanded && shape.dim() > 0) strides[0] = 0;
  if (layout == Layout::channels_last) {
    Shape pixels = shape;
    pixels.erase(1);
    strides = contiguous_strides(pixels);
    for (int64_t& stride : strides) stride *= shape[1];
    strides.insert(1, 1);
  }
  return strides;
}

/// An Array in a layout; `shifted` is row-major, and not aligned.
inline Array array_of(DType dtype, const Shape& shape, Layout layout = Layout::row_major) {
  return Array(dtype, shape, strides_of(shape, layout), layout == Layout::shifted ? 1 : 0);
}

/// What rounding to a dtype may add to a result.
inline double precision_of(DType dtype) {
  if (dtype == DType::float16) return 0x1p-10;
  if (dtype == DType::bfloat16) return 0x1p-7;
  return dtype == DType::float32 ? 1e-5 : 1e-12;
}

/// Random numbers in [low, high), the same in every run.
class Numbers {
 public:
  explicit Numbers(unsigned seed) : engine_(seed) {}
  double real(double low, double high) { return std::uniform_real_distribution<>(low, high)(engine_); }
  int64_t whole(int64_t low, int64_t high) {  // inclusive
    return std::uniform_int_distribution<int64_t>(low, high)(engine_);
  }
  /// One that the dtype can hold: small whole numbers where it is no floating one.
  double of(DType dtype) {
    if (is_floating(dtype)) return real(-2, 2);
    return static_cast<double>(dtype == DType::bool_ ? whole(0, 1) : whole(0, 9));
  }

 private:
  std::mt19937 engine_;
};

}  // namespace mezzo::cuda
