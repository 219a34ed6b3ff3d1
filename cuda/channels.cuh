// Walking tensors [N, C, ...] channel by channel: neighbouring threads, and packs of 16 bytes, lie along
// memory, be that along the channels (channels-last) or along the pixels (row-major).
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "cuda/access.cuh"

namespace mezzo::cuda {

/// A number per channel, or none.
struct PerChannel {
  void* data;
  DType dtype;
  int64_t stride;

  PerChannel(const View& view)
      : data(view.data), dtype(view.dtype), stride(view.given() ? view.strides[0] : 0) {}
  template <class T>
  __device__ T get(int64_t c, T otherwise) const {
    return data ? load<T>(data, dtype, c * stride) : otherwise;
  }
  template <class T>
  __device__ void set(int64_t c, T value) const {
    if (data) store(data, dtype, c * stride, value);
  }
};

/// n views of one shape [N, C, ...], the first of them given, as an argument of a kernel. A thread has one
/// column, which is a channel or a pack of them, and goes down rows, which are pixels or packs of them.
template <int n>
struct Channels {
  static constexpr unsigned kThreads = 256;  ///< of a block, at most

  void* data[n];
  DType dtypes[n];
  int64_t channels, columns, per_channel;  ///< per_channel: values that each has
  int64_t steps[n];                        ///< from a column to the next
  Walk<n> rows;
  bool abreast;  ///< neighbouring threads have neighbouring columns, not rows
  bool packed;

  explicit Channels(const std::array<View, n>& views)
      : channels(views[0].shape[1]), columns(channels), rows(without_channels(views)) {
    for (int v = 0; v < n; ++v) {
      const View& view = views[static_cast<size_t>(v)];
      data[v] = view.data;
      dtypes[v] = view.dtype;
      steps[v] = view.given() && channels > 1 ? view.strides[1] : 0;
    }
    per_channel = rows.count;
    abreast = channels > 1 && (rows.count <= 1 || steps[0] < rows.strides[rows.dims - 1][0]);
    const int width = pack_size(dtypes[0]);
    packed = can_pack(width);
    if (packed) pack(width);
  }

  /// Slices of the rows (gridDim.y) and strips of columns (gridDim.x), in a way that views and device alone
  /// decide.
  Grid grid() const {
    constexpr int64_t kRows = 2;  // a thread has at least as many, where there are many
    const auto power_above = [](int64_t i) {
      return static_cast<unsigned>(std::bit_ceil(static_cast<uint64_t>(std::min<int64_t>(i, kThreads))));
    };
    const unsigned across = abreast ? std::min(kWarp, power_above(columns)) : 1;
    const unsigned down = std::clamp(power_above(rows.count), kWarp / across, kThreads / across);
    const int64_t strips = divide_up(columns, across), share = kRows * down;
    const int64_t most = std::max<int64_t>(1, blocks_of_device(8) / strips);
    const int64_t slices = std::clamp<int64_t>(divide_up(rows.count, share), 1, most);
    return {dim3(static_cast<unsigned>(strips), static_cast<unsigned>(slices)), dim3(across, down)};
  }

  /// f(Access) for the way that these views can be read.
  template <class F>
  void with_access(F&& f) const {
    if (!packed) return with_elements(dtypes[0], f);
    abreast ? with_packs<true>(dtypes[0], f) : with_packs<false>(dtypes[0], f);
  }

  __device__ bool given(int v) const { return data[v] != nullptr; }
  __device__ int64_t column() const { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }
  /// The first of the thread's channels; threads beyond the last column have that one's too.
  template <class A>
  __device__ int64_t first_channel() const {
    return (column() < columns ? column() : columns - 1) * A::channels;
  }
  /// f(place) for the thread's rows, with the place in each view.
  template <class F>
  __device__ void for_rows(F&& f) const {
    if (column() >= columns) return;
    const int64_t step = int64_t{gridDim.y} * blockDim.y;
    for (int64_t row = int64_t{blockIdx.y} * blockDim.y + threadIdx.y; row < rows.count; row += step) {
      int64_t place[n];
      rows.places(row, place);
      for (int v = 0; v < n; ++v) place[v] += column() * steps[v];
      f(place);
    }
  }
  template <class A>
  __device__ void read(typename A::T (&values)[A::width], int v, const int64_t (&place)[n]) const {
    A::read(values, data[v], dtypes[v], place[v]);
  }
  template <class A>
  __device__ void write(const typename A::T (&values)[A::width], int v, const int64_t (&place)[n]) const {
    A::write(values, data[v], dtypes[v], place[v]);
  }

 private:
  static Walk<n> without_channels(std::array<View, n> views) {
    std::array<const View*, n> pointers;
    for (size_t v = 0; v < n; ++v) {
      pointers[v] = &views[v];
      if (!views[v].given()) continue;
      views[v].shape.erase(1);
      views[v].strides.erase(1);
    }
    return Walk<n>(pointers);
  }

  /// Whether all views are of one dtype and lie in whole, aligned packs.
  bool can_pack(int width) const {
    bool fits = columns > 0 && (!abreast || channels % width == 0);
    for (int v = 0; v < n; ++v) {
      if (data[v] == nullptr) continue;
      fits &= dtypes[v] == dtypes[0] && is_aligned(data[v]);
      fits &= abreast ? steps[v] == 1 && starts_packs(rows, v, width)
                      : steps[v] % width == 0 && has_packs(rows, v, width);
    }
    return fits;
  }
  void pack(int width) {
    if (!abreast) return walk_packs(rows, width);
    columns /= width;
    for (int64_t& step : steps) step *= width;
  }
};

}  // namespace mezzo::cuda
