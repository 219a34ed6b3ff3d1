// Attention by blocks of queries and keys, whose scores stay in the cache: the L x S weights are never held
// as a whole. Forward keeps for each query the largest score so far and the sum of exponentials beside it,
// and rescales when a larger one comes; backward has the weights again from the logarithm of that sum. Dao et
// al., "FlashAttention" (2022). Arithmetic is in T, float or double, products are of tiles
// (tile_product.h).
#include <cmath>
#include <initializer_list>
#include <limits>

#include "tensor/cpu/ahead.h"
#include "tensor/cpu/kernel_families.h"
#include "tensor/cpu/lines.h"
#include "tensor/cpu/parallel.h"
#include "tensor/cpu/runs.h"
#include "tensor/cpu/scratch.h"
#include "tensor/cpu/tile_product.h"

namespace mezzo::cpu {
namespace {

constexpr int64_t kQueries = 64, kKeys = 128;  // of a block: with 64 elements each, 150 KiB of float

template <class T>
constexpr T kHidden = -std::numeric_limits<T>::infinity();

int64_t size_at(const View& view, int from_end) { return view.shape[view.shape.dim() - from_end]; }

/// Product of all dimensions but the last two.
int64_t batches_of(const View& view) {
  int64_t batches = 1;
  for (int d = 0; d < view.shape.dim() - 2; ++d) batches *= view.shape[d];
  return batches;
}

/// A block of rows, a left operand or a result of products: in scratch memory, or those of a view where they
/// lie.
template <class T>
class Block {
 public:
  Block(int64_t most_rows, int64_t columns)
      : columns_(columns),
        size_(Tile<T>::size_in_rows(most_rows, columns)),
        memory_(static_cast<size_t>(size_) * sizeof(T)),
        tile_(own()) {}

  Tile<T> tile() const { return tile_; }
  /// Rows from `first` on.
  Tile<T> rows_from(int64_t first) const {
    Tile<T> rows = tile();
    rows.data = row(first);
    return rows;
  }
  T* row(int64_t i) const { return tile_.at(i, 0); }
  int64_t columns() const { return columns_; }
  void fill(T value) const { std::fill_n(row(0), size_, value); }
  void scale(int64_t rows, double factor) const {
    for (int64_t i = 0; i < rows; ++i) {
      T* x = row(i);
#pragma omp simd
      for (int64_t e = 0; e < columns_; ++e) x[e] *= static_cast<T>(factor);
    }
  }

  /// From now on rows [first, first + rows) of matrix `batch` of a view, to be read: where they lie if they
  /// are whole blocks of T, else a copy.
  void read(const View& view, int64_t batch, int64_t first, int64_t rows) {
    const auto lines =
        Tile<T>::in_place(view, offset(view, batch, first), stride(view, 2), stride(view, 1), rows, columns_);
    if (!lines.data) return copy(view, batch, first, rows);
    tile_ = lines;
  }
  /// The same, to be changed.
  void copy(const View& view, int64_t batch, int64_t first, int64_t rows) {
    tile_ = own();
    for (int64_t i = 0; i < rows; ++i)
      load_run(row(i), address(view, offset(view, batch, first + i)), view.dtype, stride(view, 1), columns_);
  }
  void write(const View& view, int64_t batch, int64_t first, int64_t rows) const {
    for (int64_t i = 0; i < rows; ++i)
      store_run(address(view, offset(view, batch, first + i)), view.dtype, stride(view, 1), row(i), columns_);
  }

  /// Position of row `row` of matrix `batch`.
  static int64_t offset(const View& view, int64_t batch, int64_t row) {
    int64_t offset = row * stride(view, 2);
    for (int d = view.shape.dim() - 3; d >= 0; --d) {
      offset += batch % view.shape[d] * view.strides[d];
      batch /= view.shape[d];
    }
    return offset;
  }
  static int64_t stride(const View& view, int from_end) {
    return view.strides[view.strides.dim() - from_end];
  }

 private:
  Tile<T> own() const { return Tile<T>::in_rows(memory_.template as<T>(), columns_); }

  int64_t columns_, size_;
  Scratch memory_;
  Tile<T> tile_;
};

/// The first rows of matrix `batch` of each view, which blocks will read next.
template <class T>
Ahead ahead_of(std::initializer_list<const View*> views, int64_t batch) {
  Ahead ahead;
  for (const View* view : views)
    ahead.add(*view, Block<T>::offset(*view, batch, 0), std::min(kKeys, size_at(*view, 2)));
  return ahead;
}

/// A block as a right operand: in panels, as it is or transposed.
template <class T>
class Packed {
 public:
  Packed(int64_t most_rows, int64_t most_columns)
      : memory_(static_cast<size_t>(Tile<T>::size_in_panels(most_rows, most_columns)) * sizeof(T)) {}

  Tile<T> rows(const Block<T>& block, int64_t rows) const {
    const auto tile = Tile<T>::in_panels(memory_.template as<T>(), rows, block.columns());
    for (int64_t i = 0; i < rows; ++i) tile.put(i, block.row(i));
    return tile;
  }
  Tile<T> transposed(const Block<T>& block, int64_t rows) const {
    const auto tile = Tile<T>::in_panels(memory_.template as<T>(), block.columns(), rows);
    put_transposed(tile, block.row(0), block.tile().row_stride, block.columns(), 0, Tile<T>::panels(rows));
    return tile;
  }

 private:
  Scratch memory_;
};

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
      load_run(
          mask,
          address(in.mask, Block<T>::offset(in.mask, batch, first + i) + key * Block<T>::stride(in.mask, 1)),
          in.mask.dtype, Block<T>::stride(in.mask, 1), keys);
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

/// f(key, keys) for the blocks of keys that queries [first, first + queries) can see, in order.
template <class F>
void for_key_blocks(const AttentionOperands& in, int64_t first, int64_t queries, F&& f) {
  const int64_t S = size_at(in.key, 2), end = in.is_causal ? std::min(S, first + queries) : S;
  for (int64_t key = 0; key < end; key += kKeys) f(key, std::min(kKeys, end - key));
}

template <class T>
class Forward {
 public:
  explicit Forward(const AttentionOperands& in)
      : in_(in),
        query_(kQueries, size_at(in.query, 1)),
        key_(kKeys, size_at(in.key, 1)),
        value_(kKeys, size_at(in.value, 1)),
        out_(kQueries, size_at(in.value, 1)),
        lse_(kQueries, 1),
        packed_(std::max(kKeys, size_at(in.key, 1)), std::max(kKeys, size_at(in.value, 1))) {}

  /// Queries [first, first + queries) of a batch; `ahead` is fetched meanwhile.
  void run(const View& out, const View& lse, int64_t batch, int64_t first, int64_t queries,
           const Ahead& ahead) {
    ahead_ = ahead;
    query_.copy(in_.query, batch, first, queries);
    query_.scale(queries, in_.scale);
    out_.fill(0);
    std::fill_n(largest_, queries, kHidden<T>);
    std::fill_n(sum_, queries, T(0));
    for_key_blocks(in_, first, queries, [&](int64_t key, int64_t keys) {
      key_.read(in_.key, batch, key, keys);
      value_.read(in_.value, batch, key, keys);
      scores_.compute(in_, batch, query_, first, queries, packed_.transposed(key_, keys), key, keys, ahead_);
      add_block(queries, keys);
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

  void add_block(int64_t queries, int64_t keys) {
    for (int64_t i = 0; i < queries; ++i) {
      const T before = largest_[i];
      largest_[i] = std::max(before, largest_of(scores_.row(i), keys));
      if (largest_[i] == before) continue;
      const T factor = std::exp(before - largest_[i]);
      sum_[i] *= factor;
      for (int64_t e = 0; e < out_.columns(); ++e) out_.row(i)[e] *= factor;
    }
    for (int64_t i = 0; i < queries; ++i) sum_[i] += scores_.exponentiate(i, keys, shift(i));
    multiply(out_.tile(), scores_.tile(keys), packed_.rows(value_, keys), queries, {.accumulate = true},
             ahead_);
  }

  const AttentionOperands& in_;
  Block<T> query_, key_, value_;
  const Block<T> out_, lse_;
  const Packed<T> packed_;
  const Scores<T> scores_;
  Ahead ahead_;
  T largest_[kQueries], sum_[kQueries];
};

template <class T>
void attention_as(const View& out, const View& lse, const AttentionOperands& in) {
  const int64_t L = size_at(lse, 2), S = size_at(in.key, 2), blocks = (L + kQueries - 1) / kQueries;
  const int64_t work = kQueries * std::max<int64_t>(1, S) * (size_at(in.key, 1) + size_at(in.value, 1));
  parallel_for(batches_of(in.query) * blocks, 1 + kParallelElements / work, [&](int64_t begin, int64_t end) {
    Forward<T> forward(in);
    for (int64_t k = begin; k < end; ++k) {
      const int64_t first = k % blocks * kQueries;
      const bool batch_ends = (k + 1) % blocks == 0 && k + 1 < end;
      forward.run(out, lse, k / blocks, first, std::min(kQueries, L - first),
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
        lse_(kQueries, 1),
        grad_query_(kQueries, size_at(in.query, 1)),
        grad_key_(size_at(in.key, 2), size_at(in.key, 1)),
        grad_value_(size_at(in.value, 2), size_at(in.value, 1)),
        packed_(std::max({kKeys, size_at(in.key, 1), size_at(in.value, 1)}),
                std::max({kKeys, size_at(in.key, 1), size_at(in.value, 1)})) {}

  /// `ahead` is fetched meanwhile.
  void run(const View& grad_query, const View& grad_key, const View& grad_value, const View& grad_out,
           const View& out, const View& lse, int64_t batch, const Ahead& ahead) {
    ahead_ = ahead;
    grad_key_.fill(0);
    grad_value_.fill(0);
    for (int64_t first = 0; first < size_at(lse, 2); first += kQueries) {
      const int64_t queries = std::min(kQueries, size_at(lse, 2) - first);
      query_.copy(in_.query, batch, first, queries);
      query_.scale(queries, in_.scale);
      grad_out_.read(grad_out, batch, first, queries);
      out_.read(out, batch, first, queries);
      lse_.read(lse, batch, first, queries);
      grad_query_.fill(0);
      for_key_blocks(in_, first, queries,
                     [&](int64_t key, int64_t keys) { add_block(batch, first, queries, key, keys); });
      grad_query_.scale(queries, in_.scale);
      grad_query_.write(grad_query, batch, first, queries);
    }
    grad_key_.write(grad_key, batch, 0, size_at(grad_key, 2));
    grad_value_.write(grad_value, batch, 0, size_at(grad_value, 2));
  }

 private:
  void add_block(int64_t batch, int64_t first, int64_t queries, int64_t key, int64_t keys) {
    key_.read(in_.key, batch, key, keys);
    value_.read(in_.value, batch, key, keys);
    weights_.compute(in_, batch, query_, first, queries, packed_.transposed(key_, keys), key, keys, ahead_);
    for (int64_t i = 0; i < queries; ++i)
      weights_.exponentiate(i, keys, *lse_.row(i) == kHidden<T> ? T(0) : *lse_.row(i));
    multiply_transposed(grad_value_.rows_from(key), weights_.tile(keys), packed_.rows(grad_out_, queries),
                        queries, true, ahead_);
    multiply(slopes_.tile(keys), grad_out_.tile(), packed_.transposed(value_, keys), queries, {}, ahead_);
    for (int64_t i = 0; i < queries; ++i) {
      const T *g = grad_out_.row(i), *o = out_.row(i);
      const T mean = sum_of<T>(out_.columns(), [&](int64_t e, int64_t m) {
        return Vec<T>::load(g + e, m, 0) * Vec<T>::load(o + e, m, 0);
      });
      T *s = slopes_.row(i), *p = weights_.row(i);
#pragma omp simd
      for (int64_t j = 0; j < keys; ++j) s[j] = p[j] * (s[j] - mean);
    }
    multiply(grad_query_.tile(), slopes_.tile(keys), packed_.rows(key_, keys), queries, {.accumulate = true},
             ahead_);
    multiply_transposed(grad_key_.rows_from(key), slopes_.tile(keys), packed_.rows(query_, queries), queries,
                        true, ahead_);
  }

  const AttentionOperands& in_;
  Block<T> query_, key_, value_, grad_out_, out_, lse_;
  const Block<T> grad_query_, grad_key_, grad_value_;
  const Packed<T> packed_;
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
