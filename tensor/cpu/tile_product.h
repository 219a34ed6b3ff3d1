// Products of tiles, by one thread, out of the cache: what the fused kernels multiply with. A library's call
// for each tile costs its packing again and again; here operands are packed as they are made.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tensor/cpu/ahead.h"
#include "tensor/cpu/tile.h"

namespace mezzo::cpu {

/// One operand of a block of products: element (row r, term k) at data[r * row + k * term], but that after
/// `run` terms the next ones are `jump` further.
template <class T>
struct Terms {
  const T* data;
  int64_t row, term, run, jump;
};

/// What becomes of the gradient of relu(a), a = (x - mean) scale + bias by columns: where a > 0, or NaN, it
/// passes, times scale. Sums over the first `rows` rows of what passes, and of that times x - mean, are added
/// to what is there. All is filled up to whole panels.
template <class T>
struct NormSlope {
  Tile<T> x;  ///< in rows
  const T *mean, *scale, *bias;
  T *passed, *weighted;
  int64_t rows;
};

/// Sums begin at start[kWidth] if it is given, and are added to what is there, those below 0 become 0, or
/// they are multiplied by a factor each, which lies as the result would in rows, or by the slope of a norm.
template <class T>
struct Finish {
  const T* start = nullptr;
  bool relu = false, accumulate = false;
  const T* factor = nullptr;
  int64_t factor_row = 0;  ///< elements to the next row
  const NormSlope<T>* norm = nullptr;
  int64_t row = 0, column = 0;  ///< of norm, where the block begins
};

/// A block's sums by the slope of a norm.
template <class T, int R, int kAll, class At>
void multiply_by_slope(typename Vec<T>::Packet (&sums)[R][kAll], const Finish<T>& finish, const At& at) {
  using Packet = typename Vec<T>::Packet;
  const NormSlope<T>& norm = *finish.norm;
  const Packet zero = ei::pset1<Packet>(T(0));
#pragma GCC unroll 4
  for (int v = 0; v < kAll; ++v) {
    const int64_t c = finish.column + at(v, Tile<T>::kWidth);
    const Packet mean = ei::ploadu<Packet>(norm.mean + c), scale = ei::ploadu<Packet>(norm.scale + c),
                 bias = ei::ploadu<Packet>(norm.bias + c);
    Packet passed = ei::ploadu<Packet>(norm.passed + c), weighted = ei::ploadu<Packet>(norm.weighted + c);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      if (finish.row + r >= norm.rows) continue;
      const Packet centred = ei::psub(ei::ploadu<Packet>(norm.x.at(finish.row + r, 0) + c), mean);
      const Packet stays = ei::pcmp_le(ei::pmadd(centred, scale, bias), zero);  // not NaN
      const Packet sum = ei::pselect(stays, zero, sums[r][v]);
      passed = ei::padd(passed, sum);
      weighted = ei::pmadd(sum, centred, weighted);
      sums[r][v] = ei::pmul(sum, scale);
    }
    ei::pstoreu(norm.passed + c, passed);
    ei::pstoreu(norm.weighted + c, weighted);
  }
}

/// out[r * out_row + p * out_panel][0, kWidth) = sum over k < terms of a(r, k) * b[p * b_panel + k * kWidth],
/// for the R rows and N panels of a block. R * N * kVectors sums are in registers at a time.
template <class T, int R, int N>
void multiply_block(T* out, int64_t out_row, int64_t out_panel, const Terms<T>& a, const T* b,
                    int64_t b_panel, int64_t terms, const Finish<T>& finish) {
  using Packet = typename Vec<T>::Packet;
  constexpr int kVectors = Tile<T>::kVectors, kAll = N * kVectors, kLanes = Vec<T>::size;
  const auto at = [](int v, int64_t panel) { return v / kVectors * panel + v % kVectors * kLanes; };
  // Unrolled by request, else sums live in memory.
  Packet sums[R][kAll], start[kAll];
  const T* from = finish.start;
  for (int v = 0; v < kAll; ++v)
    start[v] = from ? ei::ploadu<Packet>(from + at(v, Tile<T>::kWidth)) : ei::pset1<Packet>(T(0));
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kAll; ++v) sums[r][v] = start[v];
  const T* column = a.data;
  for (int64_t first = 0; first < terms; first += a.run, column += a.jump) {
    const T* element = column;
#pragma GCC unroll 4  // counting takes the ports that multiply: 7 % of a block's time
    for (int64_t k = std::min(a.run, terms - first); k > 0; --k, element += a.term, b += Tile<T>::kWidth) {
      Packet right[kAll];
#pragma GCC unroll 4
      for (int v = 0; v < kAll; ++v) right[v] = ei::ploadu<Packet>(b + at(v, b_panel));
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const Packet left = ei::pset1<Packet>(element[r * a.row]);
#pragma GCC unroll 4
        for (int v = 0; v < kAll; ++v) sums[r][v] = ei::pmadd(left, right[v], sums[r][v]);
      }
    }
  }
  const auto each = [&](auto&& f) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < kAll; ++v) f(r, v, sums[r][v]);
  };
  const auto result = [&](int r, int v) { return out + r * out_row + at(v, out_panel); };
  const Packet zero = ei::pset1<Packet>(T(0));
  if (finish.accumulate)
    each([&](int r, int v, Packet& sum) { sum = ei::padd(sum, ei::ploadu<Packet>(result(r, v))); });
  if (finish.relu)
    each([&](int, int, Packet& sum) { sum = ei::pselect(ei::pcmp_lt(sum, zero), zero, sum); });  // NaN stays
  if (finish.factor)
    each([&](int r, int v, Packet& sum) {
      sum = ei::pmul(sum, ei::ploadu<Packet>(finish.factor + r * finish.factor_row + at(v, Tile<T>::kWidth)));
    });
  if (finish.norm) multiply_by_slope<T>(sums, finish, at);
  each([&](int r, int v, Packet& sum) { ei::pstoreu(result(r, v), sum); });
}

/// f.operator()<R, N>(row) for blocks that cover rows, an even number: of one panel where two are the most,
/// or of the most, 6 rows at a time, since a block reads R + 2 N vectors for 2 R N products.
template <class T, class F>
void for_blocks(int64_t panels, int64_t rows, F&& f) {
  constexpr int kMost = Tile<T>::kPanels;
  int64_t i = 0;
  if (panels < kMost) {
    for (; i < rows; i += Tile<T>::kRows) f.template operator()<Tile<T>::kRows, 1>(i);
    return;
  }
  // 8 rows at the end are 4 and 4: 2 by themselves have too few sums to keep the multipliers busy.
  for (; rows - i >= 6 && rows - i != 8; i += 6) f.template operator()<6, kMost>(i);
  for (; rows - i >= 4; i += 4) f.template operator()<4, kMost>(i);
  if (i < rows) f.template operator()<2, kMost>(i);
}

/// out[rows, N] = a[rows, K] b[K, N], from start[N, filled up] on if it is given.
template <class T>
void multiply(const Tile<T>& out, const Tile<T>& a, const Tile<T>& b, int64_t rows, const Finish<T>& finish,
              Ahead& ahead) {
  constexpr int64_t W = Tile<T>::kWidth;
  const int64_t panels = Tile<T>::panels(out.columns);
  // Terms of two panels in most of a cache of 48 KiB: all rows read them.
  constexpr int64_t kTerms = 128 * 4 / sizeof(T);
  const int64_t run = a.panel_stride == W ? a.columns : W;
  for (int64_t p = 0; p < panels; p += Tile<T>::kPanels) {
    for (int64_t k = 0; k < std::max<int64_t>(1, a.columns); k += kTerms) {
      Finish<T> of_panel = k == 0 ? finish : Finish<T>{.accumulate = true};
      of_panel.factor_row = finish.factor_row;
      of_panel.column = p * W;
      if (of_panel.start) of_panel.start += p * W;
      const bool ends = k + kTerms >= a.columns;
      of_panel.relu = finish.relu && ends;
      of_panel.norm = ends ? finish.norm : nullptr;
      for_blocks<T>(
          std::min(Tile<T>::kPanels, panels - p), Tile<T>::padded_rows(rows), [&]<int R, int N>(int64_t i) {
            of_panel.factor = finish.factor && ends ? finish.factor + i * finish.factor_row + p * W : nullptr;
            of_panel.row = i;
            multiply_block<T, R, N>(out.at(i, p), out.row_stride, out.panel_stride,
                                    {a.at(i, k / W), a.row_stride, 1, run, a.panel_stride}, b.at(k, p),
                                    b.panel_stride, std::min(kTerms, a.columns - k), of_panel);
            ahead.step();
          });
    }
  }
}

/// out[M, N] (+)= a[rows, M]ᵀ b[rows, N], for `a` in rows.
template <class T>
void multiply_transposed(const Tile<T>& out, const Tile<T>& a, const Tile<T>& b, int64_t rows,
                         bool accumulate, Ahead& ahead) {
  const int64_t panels = Tile<T>::panels(out.columns);
  for (int64_t p = 0; p < panels; p += Tile<T>::kPanels)
    for_blocks<T>(std::min(Tile<T>::kPanels, panels - p), Tile<T>::padded_rows(a.columns),
                  [&]<int R, int N>(int64_t m) {
                    multiply_block<T, R, N>(out.at(m, p), out.row_stride, out.panel_stride,
                                            {a.data + m, 1, a.row_stride, rows, 0}, b.at(0, p),
                                            b.panel_stride, rows, {.accumulate = accumulate});
                    ahead.step();
                  });
}

}  // namespace mezzo::cpu
