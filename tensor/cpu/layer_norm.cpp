// Layer normalisation: a row is read into the cache once and walked two or three times there. Arithmetic is
// in T, float or double; sums of many terms are combined in double.
#include <cmath>
#include <span>
#include <vector>

#include "tensor/cpu/kernel_families.h"
#include "tensor/cpu/parallel.h"
#include "tensor/cpu/runs.h"
#include "tensor/cpu/scratch.h"

namespace mezzo::cpu {
namespace {

Shape row_major(const View& view) { return contiguous_strides(view.shape); }

/// A row of parameters as T, `otherwise` where none is given.
template <class T>
std::vector<T> parameters(const View& view, int64_t n, T otherwise) {
  std::vector<T> values(static_cast<size_t>(n), otherwise);
  if (view.given()) copy({values.data(), dtype_of<T>, view.shape, row_major(view)}, view);
  return values;
}

/// Row-major rows of `n` elements as arrays of T.
template <class T>
class Rows {
 public:
  Rows(const View& view, int64_t n) : view_(view), n_(n), buffer_(view.dtype == dtype_of<T> ? 0 : bytes()) {}

  const T* read(int64_t row) const { return read_run(view_, row * n_, 1, n_, buffer_.template as<T>()); }
  T* to_write(int64_t row) const { return write_run(view_, row * n_, 1, n_, buffer_.template as<T>()); }
  void write(int64_t row, const T* values) const { write_back(view_, row * n_, 1, n_, values); }

 private:
  size_t bytes() const { return static_cast<size_t>(n_) * sizeof(T); }

  const View& view_;
  int64_t n_;
  Scratch buffer_;
};

/// Sum of term(i) for i below n: in T for one piece of kChunk terms, then in double.
template <class T, class Term>
double add_up(int64_t n, Term&& term) {
  double total = 0;
  for (int64_t first = 0; first < n; first += kChunk) {
    const int64_t end = std::min(n, first + kChunk);
    T sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = first; i < end; ++i) sum += term(i);
    total += static_cast<double>(sum);
  }
  return total;
}

template <class T>
void forward_as(const View& out, const View& mean, const View& rstd, const View& input, const View& weight,
                const View& bias, double eps) {
  const int64_t rows = mean.numel(), n = input.numel() / rows;
  const StagedInput x_rows(input, input.dtype, row_major(input));
  const StagedOutput y_rows(out, out.dtype, row_major(out)), means(mean, dtype_of<T>, row_major(mean)),
      scales(rstd, dtype_of<T>, row_major(rstd));
  const std::vector<T> weights = parameters<T>(weight, n, 1), biases = parameters<T>(bias, n, 0);
  const T *w = weights.data(), *b = biases.data();
  parallel_for(rows, 1 + kParallelElements / n, [&](int64_t begin, int64_t end) {
    const Rows<T> from(x_rows.view(), n), to(y_rows.view(), n);
    for (int64_t row = begin; row < end; ++row) {
      const T* x = from.read(row);
      const auto count = static_cast<double>(n);
      const T center = static_cast<T>(add_up<T>(n, [&](int64_t i) { return x[i]; }) / count);
      const double squares = add_up<T>(n, [&](int64_t i) { return (x[i] - center) * (x[i] - center); });
      const T scale = static_cast<T>(1 / std::sqrt(squares / count + eps));
      means.view().template as<T>()[row] = center;
      scales.view().template as<T>()[row] = scale;
      T* y = to.to_write(row);
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - center) * scale * w[i] + b[i];
      to.write(row, y);
    }
  });
  for (const StagedOutput* result : {&y_rows, &means, &scales}) result->finish();
}

// --- backward

/// Sums over rows for grad_weight and grad_bias: in T for a few dozen rows, then in double.
template <class T>
class ColumnSums {
 public:
  /// `totals`: 2 n doubles, which become the sums at finish().
  ColumnSums(int64_t n, double* totals)
      : n_(n), totals_(totals), sums_(static_cast<size_t>(2 * n) * sizeof(T)) {
    std::fill_n(totals_, 2 * n_, 0.0);
    std::fill_n(weight(), 2 * n_, T(0));
  }
  T* weight() const { return sums_.template as<T>(); }
  T* bias() const { return weight() + n_; }
  void added() {
    if (++rows_ == kShort) finish();
  }
  void finish() {
    T* sums = weight();
    for (int64_t i = 0; i < 2 * n_; ++i) {
      totals_[i] += static_cast<double>(sums[i]);
      sums[i] = 0;
    }
    rows_ = 0;
  }

 private:
  static constexpr int kShort = 32;

  int64_t n_;
  double* totals_;
  Scratch sums_;
  int rows_ = 0;
};

/// dx for a row of g, and what it adds to the sums.
template <class T>
void row_gradient(T* dx, const T* g, const T* x, const T* w, T center, T scale, int64_t n,
                  ColumnSums<T>& columns) {
  T *dw = columns.weight(), *db = columns.bias();
  double sum = 0, products = 0;
  for (int64_t first = 0; first < n; first += kChunk) {
    const int64_t end = std::min(n, first + kChunk);
    T piece_sum = 0, piece_products = 0;
#pragma omp simd reduction(+ : piece_sum, piece_products)
    for (int64_t i = first; i < end; ++i) {
      const T xhat = (x[i] - center) * scale, u = g[i] * w[i];
      dw[i] += g[i] * xhat;
      db[i] += g[i];
      piece_sum += u;
      piece_products += u * xhat;
    }
    sum += static_cast<double>(piece_sum);
    products += static_cast<double>(piece_products);
  }
  const auto base = static_cast<T>(sum / static_cast<double>(n)),
             slope = static_cast<T>(products / static_cast<double>(n));
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) dx[i] = scale * (g[i] * w[i] - base - (x[i] - center) * scale * slope);
  columns.added();
}

template <class T>
void backward_as(const View& grad_input, const View& grad_weight, const View& grad_bias, const View& grad_out,
                 const View& input, const View& mean, const View& rstd, const View& weight) {
  // Blocks that the shape alone decides: their sums, combined in order, have the same bits for any number of
  // threads.
  constexpr int64_t kBlocks = 64, kLeastRows = 32;
  const int64_t rows = mean.numel(), n = grad_weight.numel();
  const int64_t block_rows = std::max(kLeastRows, (rows + kBlocks - 1) / kBlocks);
  const int64_t blocks = (rows + block_rows - 1) / block_rows;
  const StagedInput g_rows(grad_out, grad_out.dtype, row_major(grad_out)),
      x_rows(input, input.dtype, row_major(input));
  const StagedInput means(mean, dtype_of<T>, row_major(mean)), scales(rstd, dtype_of<T>, row_major(rstd));
  const StagedOutput dx_rows(grad_input, grad_input.dtype, row_major(grad_input));
  const std::vector<T> weights = parameters<T>(weight, n, 1);
  std::vector<double> totals(static_cast<size_t>(2 * n * std::max<int64_t>(1, blocks)));

  parallel_for(
      blocks, 1 + kParallelElements / std::max<int64_t>(1, block_rows * n), [&](int64_t begin, int64_t end) {
        const Rows<T> gradient(g_rows.view(), n), values(x_rows.view(), n), result(dx_rows.view(), n);
        for (int64_t block = begin; block < end; ++block) {
          ColumnSums<T> columns(n, totals.data() + 2 * n * block);
          for (int64_t row = block * block_rows; row < std::min(rows, (block + 1) * block_rows); ++row) {
            T* dx = result.to_write(row);
            row_gradient(dx, gradient.read(row), values.read(row), weights.data(),
                         means.view().template as<T>()[row], scales.view().template as<T>()[row], n, columns);
            result.write(row, dx);
          }
          columns.finish();
        }
      });
  dx_rows.finish();
  for (int64_t block = 1; block < blocks; ++block) {
    for (int64_t i = 0; i < 2 * n; ++i)
      totals[static_cast<size_t>(i)] += totals[static_cast<size_t>(2 * n * block + i)];
  }
  copy(grad_weight, {totals.data(), DType::float64, grad_weight.shape, row_major(grad_weight)});
  copy(grad_bias, {totals.data() + n, DType::float64, grad_bias.shape, row_major(grad_bias)});
}

void forward(const View& out, const View& mean, const View& rstd, const View& input, const View& weight,
             const View& bias, double eps) {
  if (input.numel() == 0) return;
  (input.dtype == DType::float64 ? forward_as<double> : forward_as<float>)(out, mean, rstd, input, weight,
                                                                           bias, eps);
}

void backward(const View& grad_input, const View& grad_weight, const View& grad_bias, const View& grad_out,
              const View& input, const View& mean, const View& rstd, const View& weight) {
  if (grad_weight.numel() == 0) return;
  (input.dtype == DType::float64 ? backward_as<double> : backward_as<float>)(grad_input, grad_weight,
                                                                             grad_bias, grad_out, input, mean,
                                                                             rstd, weight);
}

}  // namespace

void add_layer_norm(Kernels& table) {
  table.layer_norm = forward;
  table.layer_norm_grad = backward;
}

}  // namespace mezzo::cpu
