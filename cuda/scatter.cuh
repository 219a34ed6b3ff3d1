// Kernels of scatter and scatter_add. What meets in one place must meet in order of i along dim, so a place
// has one thread. Where there are many lines along dim, each thread walks one. Where there are few (the
// gradient of an embedding: one list of positions for all columns), the positions are sorted first, and a
// thread takes all elements of one position and column. Nothing here depends on the order of threads.
#pragma once

#include "cuda/pack.cuh"

namespace mezzo::cuda {

/// What becomes of the element x that comes to a place.
struct Replace {
  static constexpr bool keeps_last = true;
  template <class T>
  static __device__ T put(T, T x) {
    return x;
  }
};
struct AddTo {
  static constexpr bool keeps_last = false;
  template <class T>
  static __device__ T put(T sum, T x) {
    return static_cast<T>(sum + x);
  }
};

/// Steps along dim.
struct ScatterSteps {
  int64_t source, index, out;
};

/// A thread for each line. Elements are of type S, sums of type T.
template <class Put, class T, class S>
__global__ void scatter_lines(const Walk<3> lines, int64_t length, ScatterSteps step, const S* source,
                              const int64_t* index, T* out) {
  for (int64_t line = first_item(); line < lines.count; line += grid_stride()) {
    int64_t place[3];
    lines.places(line, place);
    for (int64_t i = 0; i < length; ++i) {
      T& to = out[place[2] + index[place[1] + i * step.index] * step.out];
      to = Put::put(to, convert_to<T>(source[place[0] + i * step.source]));
    }
  }
}

// --- by sorted positions

/// Lists of positions, each for all the columns, in pieces that are sorted and scattered one after the other.
struct SortedScatter {
  static constexpr int piece_size = 8192;

  Walk<3> lists;    ///< the first elements in index, source and out
  Walk<2> columns;  ///< in source and out, from there
  ScatterSteps step;
  int64_t length;  ///< of a list
  /// For each list and piece its elements, ordered by position and then by i: where they are in the piece,
  /// and their positions.
  int32_t *order, *positions;
};

inline constexpr unsigned kSortThreads = 256;

/// A block finds the ranks of 32 elements: how many of their piece have smaller positions, or the same and
/// come before. That is `piece_size` comparisons an element, all in parallel, and the work of one launch.
__global__ void __launch_bounds__(kSortThreads) sort_positions(const SortedScatter s, const int64_t* index) {
  constexpr int warps = kSortThreads / kWarp, share = 128, tile = warps * share;
  SHARED(int32_t, keys, [tile]);
  SHARED(int32_t, ranks, [warps][kWarp]);
  const int lane = static_cast<int>(threadIdx.x % kWarp), warp = static_cast<int>(threadIdx.x / kWarp);
  const int64_t groups = divide_up(s.length, kWarp);
  for (int64_t task = blockIdx.x; task < s.lists.count * groups; task += gridDim.x) {
    const int64_t list = task / groups, group = task % groups * kWarp,
                  piece = group / s.piece_size * s.piece_size;
    const int length = static_cast<int>(std::min<int64_t>(s.piece_size, s.length - piece));
    const int first = static_cast<int>(group - piece), i = first + lane;
    int64_t place[3];
    s.lists.places(list, place);
    const auto key = [&](int k) {  // those that do not exist come last; one more is a number too
      return k < length ? static_cast<int32_t>(index[place[0] + (piece + k) * s.step.index])
                        : std::numeric_limits<int32_t>::max() - 1;
    };
    const int32_t mine = key(i);
    int32_t rank = 0;
    for (int begin = 0; begin < length; begin += tile) {
      for (int k = static_cast<int>(threadIdx.x); k < tile; k += static_cast<int>(kSortThreads))
        keys[k] = key(begin + k);
      __syncthreads();
      const int from = begin + warp * share;  // the warp's share of the tile
      const auto count = [&](auto limit) {
#pragma unroll 8
        for (int k = 0; k < share; ++k) rank += keys[warp * share + k] < limit(k) ? 1 : 0;
      };
      if (from + share <= first)
        count([above = mine + 1](int) { return above; });
      else if (from >= first + static_cast<int>(kWarp))
        count([mine](int) { return mine; });
      else
        count([=](int k) { return mine + (from + k < i ? 1 : 0); });
      __syncthreads();
    }
    ranks[warp][lane] = rank;
    __syncthreads();
    if (warp == 0 && i < length) {
      rank = 0;
      for (int w = 0; w < warps; ++w) rank += ranks[w][lane];
      const int64_t to = list * s.length + piece + rank;
      s.order[to] = i;
      s.positions[to] = mine;
    }
    // The ranks of the next elements are written behind the barriers of their tiles.
  }
}

/// A thread for each element of a piece and each column; that of a position's first element (or its last, if
/// that alone counts) does the work of all.
template <class Put, class T, class S>
__global__ void scatter_sorted(const SortedScatter s, int64_t piece, int64_t length, const S* source,
                               T* out) {
  constexpr int ahead = 8;
  const int64_t columns = s.columns.count, items = s.lists.count * length * columns;
  for (int64_t item = first_item(); item < items; item += grid_stride()) {
    const int64_t column = item % columns, list = item / columns / length;
    int64_t at = item / columns % length, list_place[3], place[2];
    const int32_t* positions = s.positions + list * s.length + piece;
    const int32_t* order = s.order + list * s.length + piece;
    const int32_t position = positions[at];
    const int64_t neighbour = Put::keeps_last ? at + 1 : at - 1;
    if (neighbour >= 0 && neighbour < length && positions[neighbour] == position) continue;
    s.lists.places(list, list_place);
    s.columns.places(column, place);
    const S* from = source + list_place[1] + place[0] + piece * s.step.source;
    T& to = out[list_place[2] + place[1] + position * s.step.out];
    const auto element = [&](int64_t k) { return convert_to<T>(from[order[k] * s.step.source]); };
    T result = Put::put(to, element(at++));
    // Several elements are fetched at once: a frequent position has many, and each comes from afar.
    for (; at + ahead <= length && positions[at + ahead - 1] == position; at += ahead) {
      T x[ahead];
      for (int k = 0; k < ahead; ++k) x[k] = element(at + k);
      for (const T value : x) result = Put::put(result, value);
    }
    for (; at < length && positions[at] == position; ++at) result = Put::put(result, element(at));
    to = result;
  }
}

}  // namespace mezzo::cuda
