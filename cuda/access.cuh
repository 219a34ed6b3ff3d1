// How kernels of normalisation read: in packs of 16 bytes, or one element after the other.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/pack.cuh"

namespace mezzo::cuda {

/// What a thread reads at once: a pack of `width` elements E that belong to `channels` neighbouring channels
/// or to one; with width 1, an element of any dtype.
template <class E, int width_, int channels_>
struct Access {
  using T = Compute<E>;
  static constexpr int width = width_, channels = channels_;
  /// Which of the channels element i of a pack belongs to.
  static constexpr __device__ int channel(int i) { return channels == 1 ? 0 : i; }

  using Stored = std::conditional_t<width == 1, void, E>;
  static __device__ void read(T (&values)[width], const void* data, DType dtype, int64_t place) {
    load_pack<Stored>(values, data, dtype, place);
  }
  static __device__ void write(const T (&values)[width], void* data, DType dtype, int64_t place) {
    store_pack<Stored>(data, dtype, place, values);
  }
};

/// f(Access) for packs of a floating dtype, whose elements belong to channels `abreast` or to one.
template <bool abreast, class F>
void with_packs(DType dtype, F&& f) {
  dispatch_floating(dtype, [&]<class E>(E) {
    constexpr int width = Pack<E>::size, channels = abreast ? width : 1;
    f(Access<E, width, channels>());
  });
}
/// f(Access) for one element at a time, of any dtype, in the arithmetic of `dtype`.
template <class F>
void with_elements(DType dtype, F&& f) {
  dtype == float64 ? f(Access<double, 1, 1>()) : f(Access<float, 1, 1>());
}

}  // namespace mezzo::cuda
