// The gradients of attention (attention.cpp).
#include "tensor/cpu/attention_scores.h"
#include "tensor/cpu/kernel_families.h"
#include "tensor/cpu/parallel.h"

namespace mezzo::cpu {
namespace {

template <class T>
class Backward {
 public:
  explicit Backward(const AttentionOperands& in)
      : in_(in),
        query_(kQueries, size_at(in.query, 1)),
        grad_out_(kQueries, size_at(in.value, 1)),
        out_(kQueries, size_at(in.value, 1)),
        lse_(kQueries, 1),
        grad_query_(kQueries, size_at(in.query, 1)),
        grad_key_(size_at(in.key, 2), size_at(in.key, 1)),
        grad_value_(size_at(in.value, 2), size_at(in.value, 1)),
        packed_query_(kQueries, size_at(in.query, 1)),
        packed_grad_(kQueries, size_at(in.value, 1)),
        key_(in.key),
        value_(in.value) {}

  /// The next batch is fetched meanwhile, unless this is the last one.
  void run(const View& grad_query, const View& grad_key, const View& grad_value, const View& grad_out,
           const View& out, const View& lse, int64_t batch, bool last) {
    ahead_ = {};
    for (const View* view : {&out, &grad_out, &in_.value, &in_.key, &in_.query}) {
      if (!last) Block<T>::announce(ahead_, *view, batch + 1);
    }
    const int64_t most = queries_of(in_);
    grad_key_.fill(0);
    grad_value_.fill(0);
    for (int64_t first = 0; first < size_at(lse, 2); first += most) {
      const int64_t queries = std::min(most, size_at(lse, 2) - first);
      query_.read(in_.query, batch, first, queries);
      query_.scale(queries, in_.scale);
      grad_out_.read(grad_out, batch, first, queries);
      out_.read(out, batch, first, queries);
      lse_.read(lse, batch, first, queries);
      grad_query_.fill(0);
      const Tile<T> query = packed_query_.rows(query_, queries), grad = packed_grad_.rows(grad_out_, queries);
      for_key_blocks(in_, first, queries, [&](int64_t key, int64_t keys) {
        add_block(batch, first, queries, key, keys, query, grad);
      });
      grad_query_.scale(queries, in_.scale);
      grad_query_.write(grad_query, batch, first, queries);
    }
    grad_key_.write(grad_key, batch, 0, size_at(grad_key, 2));
    grad_value_.write(grad_value, batch, 0, size_at(grad_value, 2));
  }

 private:
  void add_block(int64_t batch, int64_t first, int64_t queries, int64_t key, int64_t keys,
                 const Tile<T>& query, const Tile<T>& grad) {
    weights_.compute(in_, batch, query_, first, queries, key_.transposed(batch, key), key, keys, ahead_);
    for (int64_t i = 0; i < queries; ++i)
      weights_.exponentiate(i, keys, *lse_.row(i) == kHidden<T> ? T(0) : *lse_.row(i));
    multiply_transposed(grad_value_.rows_from(key), weights_.tile(keys), grad, queries, true, ahead_);
    multiply(slopes_.tile(keys), grad_out_.tile(), value_.transposed(batch, key), queries, {}, ahead_);
    for (int64_t i = 0; i < queries; ++i) {
      const T *g = grad_out_.row(i), *o = out_.row(i);
      const T mean = sum_of<T>(out_.columns(), [&](int64_t e, int64_t m) {
        return Vec<T>::load(g + e, m, 0) * Vec<T>::load(o + e, m, 0);
      });
      T *s = slopes_.row(i), *p = weights_.row(i);
#pragma omp simd
      for (int64_t j = 0; j < keys; ++j) s[j] = p[j] * (s[j] - mean);
    }
    multiply(grad_query_.tile(), slopes_.tile(keys), key_.rows(batch, key), queries, {.accumulate = true},
             ahead_);
    multiply_transposed(grad_key_.rows_from(key), slopes_.tile(keys), query, queries, true, ahead_);
  }

  const AttentionOperands& in_;
  const Block<T> query_, grad_out_, out_, lse_, grad_query_, grad_key_, grad_value_;
  const Packed<T> packed_query_, packed_grad_;
  Resident<T> key_, value_;
  const Scores<T> weights_, slopes_;
  Ahead ahead_;
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
                                batch + 1 == end);
               });
}

void attention_grad(const View& grad_query, const View& grad_key, const View& grad_value,
                    const View& grad_out, const View& out, const View& lse, const AttentionOperands& in) {
  (in.query.dtype == DType::float64
       ? attention_grad_as<double>
       : attention_grad_as<float>)(grad_query, grad_key, grad_value, grad_out, out, lse, in);
}

}  // namespace

void add_attention_grad(Kernels& table) { table.attention_grad = attention_grad; }

}  // namespace mezzo::cpu
