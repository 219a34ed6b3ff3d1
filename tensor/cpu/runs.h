// Runs of elements of a view as arrays of the type that arithmetic runs in, without a copy where they are
// that already.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/cpu/convert.h"
#include "tensor/kernels.h"

namespace mezzo::cpu {

/// Elements for which waking another thread pays.
inline constexpr int64_t kParallelElements = 32768;

/// Address of the element at `offset`.
inline std::byte* address(const View& view, int64_t offset) {
  return view.as<std::byte>() + offset * static_cast<int64_t>(size_of(view.dtype));
}

/// The array of T that `n` elements of `view` are already, or null if their dtype or stride is another.
template <class T>
T* memory_run(const View& view, int64_t offset, int64_t stride, int64_t n) {
  if (view.dtype != dtype_of<T> || (stride != 1 && n > 1)) return nullptr;
  return view.as<T>() + offset;
}

/// `n` elements as an array of T: the memory itself where it is one, else `buffer`, filled by conversion.
template <class T>
T* read_run(const View& view, int64_t offset, int64_t stride, int64_t n, T* buffer) {
  if (T* memory = memory_run<T>(view, offset, stride, n)) return memory;
  load_run(buffer, address(view, offset), view.dtype, stride, n);
  return buffer;
}

/// Where to put `n` elements before write_back: the memory itself where it is an array of T, else `buffer`.
template <class T>
T* write_run(const View& view, int64_t offset, int64_t stride, int64_t n, T* buffer) {
  T* memory = memory_run<T>(view, offset, stride, n);
  return memory ? memory : buffer;
}

/// Brings what read_run or write_run returned, changed since, to the view.
template <class T>
void write_back(const View& view, int64_t offset, int64_t stride, int64_t n, const T* run) {
  if (run == memory_run<T>(view, offset, stride, n)) return;
  store_run(address(view, offset), view.dtype, stride, run, n);
}

}  // namespace mezzo::cpu
