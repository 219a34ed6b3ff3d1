// Passes over a line: elements that lie in the cache as one array, taken a vector at a time. The last vector
// of a line is a part of one; its other lanes are made up, so that they change nothing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "tensor/cpu/convert.h"
#include "tensor/cpu/vec.h"

namespace mezzo::cpu {

/// f(k, i, n) for the vectors of [begin, end): n elements from i on. k counts from 0 to 3 and again, for
/// results that are kept apart, so that the next need not wait for the last.
template <class T, class F>
void for_vectors(int64_t begin, int64_t end, F&& f) {
  constexpr int64_t size = Vec<T>::size;
  int64_t i = begin;
  for (; i + 4 * size <= end; i += 4 * size) {
    f(0, i, size);
    f(1, i + size, size);
    f(2, i + 2 * size, size);
    f(3, i + 3 * size, size);
  }
  for (; i < end; i += size) f(0, i, std::min(size, end - i));
}

/// The largest of n elements, -infinity if there are none; NaN is passed over.
template <class T>
T largest_of(const T* x, int64_t n) {
  using V = Vec<T>;
  constexpr T lowest = -std::numeric_limits<T>::infinity();
  V largest[] = {V(lowest), V(lowest), V(lowest), V(lowest)};
  for_vectors<T>(
      0, n, [&](int k, int64_t i, int64_t m) { largest[k] = larger(largest[k], V::load(x + i, m, lowest)); });
  return larger(larger(largest[0], largest[1]), larger(largest[2], largest[3])).largest_lane();
}

/// Sum over a line of n elements of term(i, m), the vector of those from i on, 0 in lanes from m on. In T for
/// a chunk, then in double.
template <class T, class Term>
T sum_of(int64_t n, Term&& term) {
  using V = Vec<T>;
  double sum = 0;
  for (int64_t begin = 0; begin < n; begin += kChunk) {
    V sums[] = {V(0), V(0), V(0), V(0)};
    for_vectors<T>(begin, std::min(n, begin + kChunk),
                   [&](int k, int64_t i, int64_t m) { sums[k] = sums[k] + term(i, m); });
    sum += static_cast<double>(((sums[0] + sums[1]) + (sums[2] + sums[3])).sum_of_lanes());
  }
  return static_cast<T>(sum);
}

/// out[i] = value(i, m) for n elements, as vectors of those from i on.
template <class T, class Value>
void fill_line(T* out, int64_t n, Value&& value) {
  for_vectors<T>(0, n, [&](int, int64_t i, int64_t m) { value(i, m).store(out + i, m); });
}

}  // namespace mezzo::cpu
