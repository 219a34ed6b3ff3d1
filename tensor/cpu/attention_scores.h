// Scores of attention, block by block.
#pragma once

#include <algorithm>
#include <limits>

#include "tensor/cpu/attention_blocks.h"
#include "tensor/cpu/lines.h"

namespace mezzo::cpu {

template <class T>
inline constexpr T kHidden = -std::numeric_limits<T>::infinity();

/// Queries of a block. Of few, fewer masked scores are computed; but each block packs its keys anew, unless
/// all keys are one block.
inline int64_t queries_of(const AttentionOperands& in) { return size_at(in.key, 2) <= kKeys ? 32 : kQueries; }

/// A block of scores, [queries, keys].
template <class T>
class Scores {
 public:
  Scores() : block_(kQueries, kKeys) {}

  T* row(int64_t i) const { return block_.row(i); }
  Tile<T> tile(int64_t keys) const {
    Tile<T> tile = block_.tile();
    tile.columns = keys;
    return tile;
  }

  /// query (scaled already) key^T, with the mask, for queries from `first` and keys from `key` on.
  void compute(const AttentionOperands& in, int64_t batch, const Block<T>& query, int64_t first,
               int64_t queries, const Tile<T>& keys_transposed, int64_t key, int64_t keys,
               Ahead& ahead) const {
    multiply(tile(keys), query.tile(), keys_transposed, queries, {}, ahead);
    for (int64_t i = 0; i < queries; ++i) {
      T* row = block_.row(i);
      if (in.is_causal)
        for (int64_t j = std::clamp<int64_t>(first + i + 1 - key, 0, keys); j < keys; ++j)
          row[j] = kHidden<T>;
      if (!in.mask.given()) continue;
      T mask[kKeys];
      const int64_t step = Block<T>::stride(in.mask, 1);
      const int64_t at = Block<T>::offset(in.mask, batch, first + i) + key * step;
      load_run(mask, address(in.mask, at), in.mask.dtype, step, keys);
      if (in.mask.dtype == DType::bool_)
        for (int64_t j = 0; j < keys; ++j) row[j] = mask[j] != 0 ? row[j] : kHidden<T>;
      else
        for (int64_t j = 0; j < keys; ++j) row[j] += mask[j];
    }
  }
  /// The scores of query i become e^(score - shift); returns their sum.
  T exponentiate(int64_t i, int64_t keys, T shift) const {
    T* row = block_.row(i);
    return sum_of<T>(keys, [&](int64_t j, int64_t m) {
      const Vec<T> e = exp(Vec<T>::load(row + j, m, kHidden<T>) - Vec<T>(shift));
      e.store(row + j, m);
      return e;
    });
  }

 private:
  Block<T> block_;
};

/// f(key, keys) for the blocks of keys that queries [first, first + queries) can see, in order: up to a
/// multiple of 8, since blocks of products go that far, and what they find there must be masked or nothing.
template <class F>
void for_key_blocks(const AttentionOperands& in, int64_t first, int64_t queries, F&& f) {
  constexpr int64_t kMultiple = 8;
  static_assert(kMultiple % Tile<float>::kRows == 0 && kMultiple % Tile<double>::kRows == 0);
  const int64_t S = size_at(in.key, 2), seen = (first + queries + kMultiple - 1) / kMultiple * kMultiple;
  const int64_t end = in.is_causal ? std::min(S, seen) : S;
  for (int64_t key = 0; key < end; key += kKeys) f(key, std::min(kKeys, end - key));
}

}  // namespace mezzo::cpu
