// Lines of elements along one dimension of several views, and a thread's part of one: in registers where it
// is small.
#pragma once

#include "cuda/pack.cuh"
#include "cuda/team.cuh"

namespace mezzo::cuda {

/// Of a block: doubles take twice the registers.
template <class T>
inline constexpr unsigned kMostThreads = sizeof(T) == 8 ? 512 : 1024;
inline constexpr int kKept = 8;  ///< elements of a line in a thread's registers

/// Lines of n views, all of one length.
template <int n>
struct Lines {
  Walk<n> starts;  ///< their first elements
  int64_t length, steps[n];
  void* data[n];
  DType dtypes[n];
  Team team;
  int64_t groups;  ///< of team.lines lines
};

/// The calling thread's part of a line: packs of `size` elements, `step` apart. Threads without a line have
/// an empty one, as all threads of a block merge together.
template <int n, int size>
struct LinePart {
  const Lines<n>& lines;
  int64_t start[n] = {}, first, step, end = 0;

  __device__ LinePart(const Lines<n>& lines, int64_t line)
      : lines(lines), first(int64_t{lines.team.member()} * size), step(int64_t{lines.team.members} * size) {
    if (line >= lines.starts.count) return;
    lines.starts.places(line, start);
    end = lines.length;
  }
  /// The pack at elements i, i + 1, ... of the line in view v.
  template <class E, class T>
  __device__ void load(T (&values)[size], int v, int64_t i) const {
    load_pack<E>(values, lines.data[v], lines.dtypes[v], start[v] + i * lines.steps[v]);
  }
  template <class E, class T>
  __device__ void store(const T (&values)[size], int v, int64_t i) const {
    store_pack<E>(lines.data[v], lines.dtypes[v], start[v] + i * lines.steps[v], values);
  }
  /// f(i, r) for the first elements i of its packs, and their numbers r: of any, or of those in registers.
  template <class F>
  __device__ void for_packs(F&& f) const {
#pragma unroll 2
    for (int64_t i = first; i < end; i += step) f(i);
  }
  template <class F>
  __device__ void for_kept(F&& f) const {
#pragma unroll
    for (int r = 0; r < kKept / size; ++r) {
      if (first + r * step < end) f(first + r * step, r);
    }
  }
  template <class T, class Merge>
  __device__ T merge(T value, Merge merge) const {
    return lines.team.template merge<1024>(value, merge);
  }
};

/// f(part) for all lines.
template <int size, int n, class F>
__device__ void for_lines(const Lines<n>& lines, F&& f) {
  for (int64_t group = blockIdx.x; group < lines.groups; group += gridDim.x) {
    f(LinePart<n, size>(lines, group * lines.team.lines + lines.team.line()));
  }
}

}  // namespace mezzo::cuda
