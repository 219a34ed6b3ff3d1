// Attention by blocks of queries and keys, whose scores stay in the cache: the L x S weights are never held
// as a whole. Forward keeps for each query the largest score so far and the sum of exponentials beside it,
// and rescales when a larger one comes; backward (attention_grad.cpp) has the weights again from the
// logarithm of that sum. Dao et al., "FlashAttention" (2022). Arithmetic is in T, float or double, products
// are of tiles (tile_product.h).
#include <cmath>

#include "tensor/cpu/attention_scores.h"
#include "tensor/cpu/kernel_families.h"
#include "tensor/cpu/parallel.h"

namespace mezzo::cpu {
namespace {

template <class T>
class Forward {
 public:
  explicit Forward(const AttentionOperands& in)
      : in_(in),
        query_(kQueries, size_at(in.query, 1)),
        out_(kQueries, size_at(in.value, 1)),
        lse_(kQueries, 1),
        key_(in.key),
        value_(in.value) {}

  /// A batch that will be run after this one is fetched meanwhile.
  void announce(int64_t batch) {
    ahead_ = {};
    for (const View* view : {&in_.value, &in_.key, &in_.query}) Block<T>::announce(ahead_, *view, batch);
  }

  /// Queries [first, first + queries) of a batch.
  void run(const View& out, const View& lse, int64_t batch, int64_t first, int64_t queries) {
    query_.read(in_.query, batch, first, queries);
    query_.scale(queries, in_.scale);
    out_.fill(0);
    std::fill_n(largest_, queries, kHidden<T>);
    std::fill_n(sum_, queries, T(0));
    for_key_blocks(in_, first, queries, [&](int64_t key, int64_t keys) {
      scores_.compute(in_, batch, query_, first, queries, key_.transposed(batch, key), key, keys, ahead_);
      add_block(queries, keys, value_.rows(batch, key));
    });
    for (int64_t i = 0; i < queries; ++i) {
      const T factor = sum_[i] == 0 ? T(0) : T(1) / sum_[i];
      for (int64_t e = 0; e < out_.columns(); ++e) out_.row(i)[e] *= factor;
      *lse_.row(i) = shift(i) + std::log(sum_[i]);
    }
    out_.write(out, batch, first, queries);
    lse_.write(lse, batch, first, queries);
  }

 private:
  /// What is taken off the scores of a query: nothing as long as it sees no key.
  T shift(int64_t i) const { return largest_[i] == kHidden<T> ? T(0) : largest_[i]; }

  void add_block(int64_t queries, int64_t keys, const Tile<T>& value) {
    for (int64_t i = 0; i < queries; ++i) {
      const T before = largest_[i];
      largest_[i] = std::max(before, largest_of(scores_.row(i), keys));
      if (largest_[i] != before) {
        const T factor = std::exp(before - largest_[i]);
        sum_[i] *= factor;
        for (int64_t e = 0; e < out_.columns(); ++e) out_.row(i)[e] *= factor;
      }
      sum_[i] += scores_.exponentiate(i, keys, shift(i));
    }
    multiply(out_.tile(), scores_.tile(keys), value, queries, {.accumulate = true}, ahead_);
  }

  const AttentionOperands& in_;
  const Block<T> query_, out_, lse_;
  Resident<T> key_, value_;
  const Scores<T> scores_;
  Ahead ahead_;
  T largest_[kQueries], sum_[kQueries];
};

template <class T>
void attention_as(const View& out, const View& lse, const AttentionOperands& in) {
  const int64_t L = size_at(lse, 2), S = std::max<int64_t>(1, size_at(in.key, 2)), most = queries_of(in);
  const int64_t blocks = (L + most - 1) / most, work = most * S * (size_at(in.key, 1) + size_at(in.value, 1));
  parallel_for(batches_of(in.query) * blocks, 1 + kParallelElements / work, [&](int64_t begin, int64_t end) {
    Forward<T> forward(in);
    for (int64_t k = begin; k < end; ++k) {
      const int64_t first = k % blocks * most;
      if ((k + 1) % blocks == 0 && k + 1 < end) forward.announce(k / blocks + 1);
      forward.run(out, lse, k / blocks, first, std::min(most, L - first));
    }
  });
}

void attention(const View& out, const View& lse, const AttentionOperands& in) {
  if (lse.numel() == 0) return;
  (in.query.dtype == DType::float64 ? attention_as<double> : attention_as<float>)(out, lse, in);
}

}  // namespace

void add_attention(Kernels& table) { table.attention = attention; }

}  // namespace mezzo::cpu
