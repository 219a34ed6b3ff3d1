// Attention: for each query, a list of weights for the keys.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tensor/reference/element.h"
#include "tensor/reference/kernel_families.h"

namespace mezzo::reference {
namespace {

constexpr double kHidden = -std::numeric_limits<double>::infinity();

int64_t size_at(const View& view, int from_end) { return view.shape[view.shape.dim() - from_end]; }

/// Product of all dimensions but the last two.
int64_t batches_of(const View& view) {
  int64_t batches = 1;
  for (int d = 0; d < view.shape.dim() - 2; ++d) batches *= view.shape[d];
  return batches;
}

/// Element [batch, row, column] of a view [..., rows, columns], batch counting all other dimensions.
struct Matrix {
  const View& view;
  int64_t batch;

  double operator()(int64_t row, int64_t column) const { return get(view, index(row, column)); }
  void set_to(int64_t row, int64_t column, double value) const { set(view, index(row, column), value); }

 private:
  int64_t index(int64_t row, int64_t column) const {
    return (batch * size_at(view, 2) + row) * size_at(view, 1) + column;
  }
};

double dot(const Matrix& a, int64_t row_a, const Matrix& b, int64_t row_b) {
  double sum = 0;
  for (int64_t e = 0; e < size_at(a.view, 1); ++e) sum += a(row_a, e) * b(row_b, e);
  return sum;
}

double score(const AttentionOperands& in, int64_t batch, int64_t i, int64_t j) {
  const double product = dot({in.query, batch}, i, {in.key, batch}, j) * in.scale;
  if (in.is_causal && j > i) return kHidden;
  if (!in.mask.given()) return product;
  const double mask = Matrix{in.mask, batch}(i, j);
  return in.mask.dtype != DType::bool_ ? product + mask : mask != 0 ? product : kHidden;
}

/// f(batch, i) for all queries.
template <class F>
void for_queries(const View& query, F&& f) {
  for (int64_t batch = 0; batch < batches_of(query); ++batch)
    for (int64_t i = 0; i < size_at(query, 2); ++i) f(batch, i);
}

void attention(const View& out, const View& lse, const AttentionOperands& in) {
  const int64_t S = size_at(in.key, 2);
  for_queries(in.query, [&](int64_t batch, int64_t i) {
    std::vector<double> weights;
    double largest = kHidden, sum = 0;
    for (int64_t j = 0; j < S; ++j) {
      weights.push_back(score(in, batch, i, j));
      largest = std::max(largest, weights.back());
    }
    for (double& weight : weights) {
      weight = largest == kHidden && weight == kHidden ? 0 : std::exp(weight - largest);
      sum += weight;
    }
    Matrix{lse, batch}.set_to(i, 0, largest + std::log(sum));
    for (int64_t e = 0; e < size_at(out, 1); ++e) {
      double total = 0;
      for (int64_t j = 0; j < S; ++j)
        total += weights[static_cast<size_t>(j)] * Matrix{in.value, batch}(j, e);
      Matrix{out, batch}.set_to(i, e, sum == 0 ? 0 : total / sum);
    }
  });
}

void attention_grad(const View& grad_query, const View& grad_key, const View& grad_value,
                    const View& grad_out, const View& out, const View& lse, const AttentionOperands& in) {
  const int64_t S = size_at(in.key, 2), E = size_at(in.key, 1), EV = size_at(in.value, 1);
  const int64_t L = size_at(in.query, 2);
  for (int64_t batch = 0; batch < batches_of(in.query); ++batch) {
    const Matrix g{grad_out, batch}, q{in.query, batch}, k{in.key, batch}, v{in.value, batch};
    std::vector<double> dq(static_cast<size_t>(L * E)), dk(static_cast<size_t>(S * E)),
        dv(static_cast<size_t>(S * EV));
    for (int64_t i = 0; i < L; ++i) {
      const double total = Matrix{lse, batch}(i, 0), mean = dot(g, i, {out, batch}, i);
      for (int64_t j = 0; j < S; ++j) {
        const double p = total == kHidden ? 0 : std::exp(score(in, batch, i, j) - total);
        const double s = p * (dot(g, i, v, j) - mean) * in.scale;
        for (int64_t e = 0; e < E; ++e) {
          dq[static_cast<size_t>(i * E + e)] += s * k(j, e);
          dk[static_cast<size_t>(j * E + e)] += s * q(i, e);
        }
        for (int64_t e = 0; e < EV; ++e) dv[static_cast<size_t>(j * EV + e)] += p * g(i, e);
      }
    }
    const auto write = [batch](const View& view, const std::vector<double>& values) {
      const int64_t n = size_at(view, 1);
      for (int64_t x = 0; x < static_cast<int64_t>(values.size()); ++x)
        Matrix{view, batch}.set_to(x / n, x % n, values[static_cast<size_t>(x)]);
    };
    write(grad_query, dq);
    write(grad_key, dk);
    write(grad_value, dv);
  }
}

}  // namespace

void add_attention(Kernels& table) {
  table.attention = attention;
  table.attention_grad = attention_grad;
}

}  // namespace mezzo::reference
