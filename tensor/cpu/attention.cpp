// Attention by blocks of queries and keys, whose scores stay in the cache: the L x S weights are never held
// as a whole. Forward keeps for each query the largest score so far and the sum of exponentials beside it,
// and rescales when a larger one comes; backward has the weights again from the logarithm of that sum. Dao et
// al., "FlashAttention" (2022). Arithmetic is in T, float or double, products are of tiles
// (tile_product.h).
#include <cmath>
#include <initializer_list>
#include <limits>
#include <utility>

#include "tensor/cpu/ahead.h"
#include "tensor/cpu/blocks.h"
#include "tensor/cpu/kernel_families.h"
#include "tensor/cpu/lines.h"
#include "tensor/cpu/parallel.h"
#include "tensor/cpu/tile_product.h"

namespace mezzo::cpu {
namespace {

constexpr int64_t kQueries = 64, kKeys = 128;  // of a block: with 64 elements each, 150 KiB of float

// Keys whose panels are kept for all queries of a batch, as long as they stay in a second cache; of more,
// each block of queries makes them again.
constexpr int64_t kKeptKeys = 512;

/// Queries of a block: with a causal mask fewer, since all see the keys that the last one sees.
int64_t block_queries(const AttentionOperands& in) { return in.is_causal ? kQueries / 2 : kQueries; }

template <class T>
constexpr T kHidden = -std::numeric_limits<T>::infinity();

/// Product of all dimensions but the last two.
int64_t batches_of(const View& view) {
  int64_t batches = 1;
  for (int d = 0; d < view.shape.dim() - 2; ++d) batches *= view.shape[d];
  return batches;
}

/// The first rows of matrix `batch` of each view, which blocks will read next.
template <class T>
Ahead ahead_of(std::initializer_list<const View*> views, int64_t batch) {
  Ahead ahead;
  for (const View* view : views)
    ahead.add(*view, offset_of(*view, batch, 0), std::min(kKeys, size_at(*view, 2)));
  return ahead;
}

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
      load_run(mask, address(in.mask, offset_of(in.mask, batch, first + i) + key * stride_at(in.mask, 1)),
               in.mask.dtype, stride_at(in.mask, 1), keys);
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

template <class T>
class Forward {
 public:
  explicit Forward(const AttentionOperands& in)
      : in_(in),
        query_(kQueries, size_at(in.query, 1)),
        key_(kKeys, size_at(in.key, 1)),
        value_(kKeys, size_at(in.value, 1)),
        out_(kQueries, size_at(in.value, 1)),
        keeps_keys_(size_at(in.key, 2) <= kKeptKeys),
        keys_transposed_(size_at(in.key, 1), keeps_keys_ ? size_at(in.key, 2) : kKeys),
        values_(keeps_keys_ ? size_at(in.key, 2) : kKeys, size_at(in.value, 1)) {}

  /// Queries [first, first + queries) of a batch; `ahead` is fetched meanwhile.
  void run(const View& out, const View& lse, int64_t batch, int64_t first, int64_t queries,
           const Ahead& ahead) {
    ahead_ = ahead;
    if (std::exchange(batch_, batch) != batch) packed_keys_ = 0;
    query_.read_scaled(in_.query, batch, first, queries, in_.scale);
    out_.write(out, batch, first, queries);
    std::fill_n(largest_, queries, kHidden<T>);
    std::fill_n(sum_, queries, T(0));
    const int64_t S = size_at(in_.key, 2), end = in_.is_causal ? std::min(S, first + queries) : S;
    if (end == 0) out_.clear(0, queries);
    for (int64_t key = 0; key < end; key += kKeys) {
      const int64_t keys = std::min(kKeys, end - key), at = keeps_keys_ ? key : 0;
      if (!keeps_keys_ || key == packed_keys_) pack(batch, key, std::min(kKeys, S - key), at);
      scores_.compute(in_, batch, query_, first, queries, keys_transposed_.columns_from(at, keys), key, keys,
                      ahead_);
      add_block(queries, key > 0, keys, values_.tile().rows_from(at));
    }
    for (int64_t i = 0; i < queries; ++i) {
      out_.scale_row(i, sum_[i] == 0 ? T(0) : T(1) / sum_[i]);
      sum_[i] = shift(i) + std::log(sum_[i]);
    }
    out_.finish(out, batch, first, queries);
    store_run(address(lse, offset_of(lse, batch, first)), lse.dtype, stride_at(lse, 2), sum_, queries);
  }

 private:
  /// Keys and values from `key` on become right operands, at `at`.
  void pack(int64_t batch, int64_t key, int64_t keys, int64_t at) {
    key_.read(in_.key, batch, key, keys);
    keys_transposed_.put_columns(at, key_, keys);
    value_.read(in_.value, batch, key, keys);
    values_.put_rows(at, value_, keys);
    packed_keys_ = key + keys;
  }
  /// What is taken off the scores of a query: nothing as long as it sees no key.
  T shift(int64_t i) const { return largest_[i] == kHidden<T> ? T(0) : largest_[i]; }

  /// Keys of a block and their values; `accumulate`: there were some before.
  void add_block(int64_t queries, bool accumulate, int64_t keys, const Tile<T>& values) {
    for (int64_t i = 0; i < queries; ++i) {
      const T before = largest_[i];
      largest_[i] = std::max(before, largest_of(scores_.row(i), keys));
      if (largest_[i] == before || before == kHidden<T>) continue;  // all the same, or nothing yet
      const T factor = std::exp(before - largest_[i]);
      sum_[i] *= factor;
      out_.scale_row(i, factor);
    }
    for (int64_t i = 0; i < queries; ++i) sum_[i] += scores_.exponentiate(i, keys, shift(i));
    multiply(out_.tile(), scores_.tile(keys), values, queries, {.accumulate = accumulate}, ahead_);
  }

  const AttentionOperands& in_;
  Block<T> query_, key_, value_, out_;
  const bool keeps_keys_;
  const Packed<T> keys_transposed_, values_;
  int64_t batch_ = -1, packed_keys_ = 0;  ///< of the batch
  const Scores<T> scores_;
  Ahead ahead_;
  T largest_[kQueries], sum_[kQueries];
};

template <class T>
void attention_as(const View& out, const View& lse, const AttentionOperands& in) {
  const int64_t most = block_queries(in), L = size_at(lse, 2), S = size_at(in.key, 2);
  const int64_t blocks = (L + most - 1) / most;
  const int64_t work = most * std::max<int64_t>(1, S) * (size_at(in.key, 1) + size_at(in.value, 1));
  parallel_for(batches_of(in.query) * blocks, 1 + kParallelElements / work, [&](int64_t begin, int64_t end) {
    Forward<T> forward(in);
    for (int64_t k = begin; k < end; ++k) {
      const int64_t first = k % blocks * most;
      const bool batch_ends = (k + 1) % blocks == 0 && k + 1 < end;
      forward.run(out, lse, k / blocks, first, std::min(most, L - first),
                  batch_ends ? ahead_of<T>({&in.value, &in.key, &in.query}, k / blocks + 1) : Ahead());
    }
  });
}

// --- backward

template <class T>
class Backward {
 public:
  explicit Backward(const AttentionOperands& in)
      : in_(in),
        query_(kQueries, size_at(in.query, 1)),
        key_(kKeys, size_at(in.key, 1)),
        value_(kKeys, size_at(in.value, 1)),
        grad_out_(kQueries, size_at(in.value, 1)),
        out_(kQueries, size_at(in.value, 1)),
        grad_query_(size_at(in.query, 2), size_at(in.query, 1)),
        grad_key_(kKeys, size_at(in.key, 1)),
        grad_value_(kKeys, size_at(in.value, 1)),
        keys_(kKeys, size_at(in.key, 1)),
        keys_transposed_(size_at(in.key, 1), kKeys),
        values_transposed_(size_at(in.value, 1), kKeys),
        queries_(kQueries, size_at(in.query, 1)),
        grads_out_(kQueries, size_at(in.value, 1)) {}

  /// Key blocks are the outer loop: their panels are made once. Of the queries the last come first: under a
  /// causal mask they see most keys, and what the first product leaves out is little. `ahead` is fetched
  /// meanwhile.
  void run(const View& grad_query, const View& grad_key, const View& grad_value, const View& grad_out,
           const View& out, const View& lse, int64_t batch, const Ahead& ahead) {
    ahead_ = ahead;
    const int64_t L = size_at(lse, 2), S = size_at(grad_key, 2), most = block_queries(in_);
    grad_query_.write(grad_query, batch, 0, L);
    if (S == 0) grad_query_.clear(0, L);
    for (int64_t key = 0; key < S; key += kKeys) {
      const int64_t keys = std::min(kKeys, S - key);
      key_.read(in_.key, batch, key, keys);
      keys_.put_rows(0, key_, keys);
      keys_transposed_.put_columns(0, key_, keys);
      value_.read(in_.value, batch, key, keys);
      values_transposed_.put_columns(0, value_, keys);
      grad_key_.write(grad_key, batch, key, keys);
      grad_value_.write(grad_value, batch, key, keys);
      const int64_t seen = seen_keys(L - key, keys);
      grad_key_.clear(seen, keys);
      grad_value_.clear(seen, keys);
      const int64_t lowest = in_.is_causal ? key / most * most : 0, last = (L - 1) / most * most;
      for (int64_t first = last; first >= lowest; first -= most) {
        const int64_t queries = std::min(most, L - first);
        query_.read_scaled(in_.query, batch, first, queries, in_.scale);
        grad_out_.read(grad_out, batch, first, queries);
        out_.read(out, batch, first, queries);
        load_run(lse_, address(lse, offset_of(lse, batch, first)), lse.dtype, stride_at(lse, 2), queries);
        add_block(batch, first, queries, key, seen_keys(first + queries - key, keys), first != last);
      }
      grad_key_.finish(grad_key, batch, key, keys);
      grad_value_.finish(grad_value, batch, key, keys);
    }
    for (int64_t i = 0; i < L; ++i) grad_query_.scale_row(i, static_cast<T>(in_.scale));
    grad_query_.finish(grad_query, batch, 0, L);
  }

 private:
  /// Of a block of keys those that are seen; under a causal mask the first `most`, in whole panels: the last
  /// one's others are hidden.
  int64_t seen_keys(int64_t most, int64_t keys) const {
    if (!in_.is_causal) return keys;
    return std::min(keys, Tile<T>::panels(std::max<int64_t>(0, most)) * Tile<T>::kWidth);
  }

  /// `accumulate`: the keys have gradients from other queries.
  void add_block(int64_t batch, int64_t first, int64_t queries, int64_t key, int64_t keys, bool accumulate) {
    weights_.compute(in_, batch, query_, first, queries, keys_transposed_.columns_from(0, keys), key, keys,
                     ahead_);
    for (int64_t i = 0; i < queries; ++i)
      weights_.exponentiate(i, keys, lse_[i] == kHidden<T> ? T(0) : lse_[i]);
    grads_out_.put_rows(0, grad_out_, queries);
    multiply_transposed(grad_value_.tile(), weights_.tile(keys), grads_out_.tile(), queries, accumulate,
                        ahead_);
    multiply(slopes_.tile(keys), grad_out_.tile(), values_transposed_.columns_from(0, keys), queries, {},
             ahead_);
    for (int64_t i = 0; i < queries; ++i) {
      const T *g = grad_out_.row(i), *o = out_.row(i);
      const T mean = sum_of<T>(out_.columns(), [&](int64_t e, int64_t m) {
        return Vec<T>::load(g + e, m, 0) * Vec<T>::load(o + e, m, 0);
      });
      T *s = slopes_.row(i), *p = weights_.row(i);
#pragma omp simd
      for (int64_t j = 0; j < keys; ++j) s[j] = p[j] * (s[j] - mean);
    }
    multiply(grad_query_.tile().rows_from(first), slopes_.tile(keys), keys_.tile(), queries,
             {.accumulate = key > 0}, ahead_);
    queries_.put_rows(0, query_, queries);
    multiply_transposed(grad_key_.tile(), slopes_.tile(keys), queries_.tile(), queries, accumulate, ahead_);
  }

  const AttentionOperands& in_;
  Block<T> query_, key_, value_, grad_out_, out_, grad_query_, grad_key_, grad_value_;
  const Packed<T> keys_, keys_transposed_, values_transposed_, queries_, grads_out_;
  const Scores<T> weights_, slopes_;
  Ahead ahead_;
  T lse_[kQueries];
};

/// Threads share out the batches, so each sum has one order.
template <class T>
void attention_grad_as(const View& grad_query, const View& grad_key, const View& grad_value,
                       const View& grad_out, const View& out, const View& lse, const AttentionOperands& in) {
  const int64_t L = size_at(in.query, 2), S = size_at(in.key, 2), E = size_at(in.key, 1);
  parallel_for(batches_of(in.query), 1 + kParallelElements / std::max<int64_t>(1, L * S * E),
               [&](int64_t begin, int64_t end) {
                 Backward<T> backward(in);
                 for (int64_t batch = begin; batch < end; ++batch)
                   backward.run(grad_query, grad_key, grad_value, grad_out, out, lse, batch,
                                batch + 1 < end
                                    ? ahead_of<T>({&out, &grad_out, &in.value, &in.key, &in.query}, batch + 1)
                                    : Ahead());
               });
}

void attention(const View& out, const View& lse, const AttentionOperands& in) {
  if (lse.numel() == 0) return;
  (in.query.dtype == DType::float64 ? attention_as<double> : attention_as<float>)(out, lse, in);
}

void attention_grad(const View& grad_query, const View& grad_key, const View& grad_value,
                    const View& grad_out, const View& out, const View& lse, const AttentionOperands& in) {
  (in.query.dtype == DType::float64
       ? attention_grad_as<double>
       : attention_grad_as<float>)(grad_query, grad_key, grad_value, grad_out, out, lse, in);
}

}  // namespace

void add_attention(Kernels& table) {
  table.attention = attention;
  table.attention_grad = attention_grad;
}

}  // namespace mezzo::cpu
