// Neighbouring elements read and written together, converted to and from the type that arithmetic runs in.
#pragma once

#include <algorithm>
#include <type_traits>

#include "cuda/element.cuh"
#include "cuda/loop.cuh"
#include "cuda/views.h"

namespace mezzo::cuda {

/// `size` (a power of 2) neighbouring elements, aligned so that a thread loads or stores them at once, or 16
/// bytes of them if they are more.
template <class E, int size_ = 16 / sizeof(E)>
struct alignas(std::min<size_t>(16, size_ * sizeof(E))) Pack {
  static constexpr int size = size_;
  E elements[size];
};

/// values = the elements from `place` on. E = void stands for a dtype that is known at run time only.
template <class E, class T, int size>
__device__ void load_pack(T (&values)[size], const void* data, DType dtype, int64_t place) {
  if constexpr (std::is_void_v<E>) {
    for (int j = 0; j < size; ++j) values[j] = load<T>(data, dtype, place + j);
  } else {
    const auto pack = *reinterpret_cast<const Pack<E, size>*>(static_cast<const E*>(data) + place);
    for (int j = 0; j < size; ++j) values[j] = convert_to<T>(pack.elements[j]);
  }
}

template <class E, class T, int size>
__device__ void store_pack(void* data, DType dtype, int64_t place, const T (&values)[size]) {
  if constexpr (std::is_void_v<E>) {
    for (int j = 0; j < size; ++j) store(data, dtype, place + j, values[j]);
  } else {
    Pack<E, size> pack;
    for (int j = 0; j < size; ++j) pack.elements[j] = convert_to<E>(values[j]);
    *reinterpret_cast<Pack<E, size>*>(static_cast<E*>(data) + place) = pack;
  }
}

/// Elements of `dtype` in a pack of 16 bytes.
inline int pack_size(DType dtype) { return static_cast<int>(16 / size_of(dtype)); }

/// Whether view v of a walk can be read in packs of `size` elements along the innermost dimension, if its
/// memory is aligned.
template <int n>
bool has_packs(const Walk<n>& walk, int v, int size) {
  const int inner = walk.dims - 1;
  bool whole = walk.strides[inner][v] == 1 && walk.sizes[inner] % size == 0;
  for (int d = 0; d < inner; ++d) whole &= walk.strides[d][v] % size == 0;
  return whole;
}

/// Whether every element of view v can begin a pack of `size` elements.
template <int n>
bool starts_packs(const Walk<n>& walk, int v, int size) {
  for (int d = 0; d < walk.dims; ++d) {
    if (walk.strides[d][v] % size != 0) return false;
  }
  return true;
}

/// Lets the walk's elements be packs of `size` along the innermost dimension.
template <int n>
void walk_packs(Walk<n>& walk, int size) {
  const int inner = walk.dims - 1;
  walk.sizes[inner] /= size;
  walk.count /= size;
  for (int v = 0; v < n; ++v) walk.strides[inner][v] *= size;
}

}  // namespace mezzo::cuda
