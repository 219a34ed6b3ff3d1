// Neighbouring elements read and written together, converted to and from the type that arithmetic runs in.
#pragma once

#include <algorithm>
#include <type_traits>

#include "cuda/element.cuh"
#include "cuda/loop.cuh"

namespace mezzo::cuda {

/// `size` (a power of 2) neighbouring elements that are aligned like one: 16 bytes a load or store, or what
/// they have.
template <class E, int size>
struct alignas(std::min<size_t>(16, size * sizeof(E))) Run {
  E elements[size];
};

/// values = the elements from `place` on. E = void stands for a dtype that is known at run time only.
template <class E, class T, int size>
__device__ void load_run(T (&values)[size], const void* data, DType dtype, int64_t place) {
  if constexpr (std::is_void_v<E>) {
    for (int j = 0; j < size; ++j) values[j] = load<T>(data, dtype, place + j);
  } else {
    const auto run = *reinterpret_cast<const Run<E, size>*>(static_cast<const E*>(data) + place);
    for (int j = 0; j < size; ++j) values[j] = convert_to<T>(run.elements[j]);
  }
}

template <class E, class T, int size>
__device__ void store_run(void* data, DType dtype, int64_t place, const T (&values)[size]) {
  if constexpr (std::is_void_v<E>) {
    for (int j = 0; j < size; ++j) store(data, dtype, place + j, values[j]);
  } else {
    Run<E, size> run;
    for (int j = 0; j < size; ++j) run.elements[j] = convert_to<E>(values[j]);
    *reinterpret_cast<Run<E, size>*>(static_cast<E*>(data) + place) = run;
  }
}

/// Elements of `dtype` in 16 bytes.
inline int pack_size(DType dtype) { return static_cast<int>(16 / size_of(dtype)); }

/// Whether view v of a walk can be read in runs of `size` elements along the innermost dimension.
template <int n>
bool has_runs(const Walk<n>& walk, int v, int size) {
  const int inner = walk.dims - 1;
  bool whole = walk.strides[inner][v] == 1 && walk.sizes[inner] % size == 0;
  for (int d = 0; d < inner; ++d) whole &= walk.strides[d][v] % size == 0;
  return whole;
}

/// Whether every place of view v is a multiple of `size`.
template <int n>
bool starts_runs(const Walk<n>& walk, int v, int size) {
  for (int d = 0; d < walk.dims; ++d) {
    if (walk.strides[d][v] % size != 0) return false;
  }
  return true;
}

/// Lets the walk's elements be runs of `size` along the innermost dimension.
template <int n>
void walk_runs(Walk<n>& walk, int size) {
  const int inner = walk.dims - 1;
  walk.sizes[inner] /= size;
  walk.count /= size;
  for (int v = 0; v < n; ++v) walk.strides[inner][v] *= size;
}

}  // namespace mezzo::cuda
