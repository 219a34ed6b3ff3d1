// Softmax along one dimension: for each line of elements along it, loops over the line.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tensor/reference/element.h"
#include "tensor/reference/kernel_families.h"

namespace mezzo::reference {
namespace {

/// The lines of views of one shape along dimension dim: `count()` of `n` elements.
struct Lines {
  int dim;
  View first;  ///< each line's first element
  int64_t n;

  Lines(const View& view, int dim) : dim(dim), first(view), n(1) {
    if (view.shape.dim() == 0) return;
    n = view.shape[dim];
    first.shape[dim] = 1;
  }
  int64_t count() const { return n > 0 ? first.numel() : 0; }
  double get(const View& view, int64_t line, int64_t i) const {
    return load<double>(view, offset(view, line, i));
  }
  void set(const View& view, int64_t line, int64_t i, double value) const {
    store(view, offset(view, line, i), value);
  }

 private:
  int64_t offset(const View& view, int64_t line, int64_t i) const {
    const View firsts{view.data, view.dtype, first.shape, view.strides};
    return offset_of(firsts, line) + i * view.strides[dim];
  }
};

void softmax(const View& out, const View& in, int dim, bool log) {
  const Lines lines(in, dim);
  for (int64_t line = 0; line < lines.count(); ++line) {
    double max = -std::numeric_limits<double>::infinity(), sum = 0;
    for (int64_t i = 0; i < lines.n; ++i) max = std::max(max, lines.get(in, line, i));
    for (int64_t i = 0; i < lines.n; ++i) sum += std::exp(lines.get(in, line, i) - max);
    for (int64_t i = 0; i < lines.n; ++i) {
      const double x = lines.get(in, line, i) - max;
      lines.set(out, line, i, log ? x - std::log(sum) : std::exp(x) / sum);
    }
  }
}

void softmax_grad(const View& grad_in, const View& g, const View& y, int dim, bool log) {
  const Lines lines(g, dim);
  for (int64_t line = 0; line < lines.count(); ++line) {
    double sum = 0;
    for (int64_t i = 0; i < lines.n; ++i) sum += lines.get(g, line, i) * (log ? 1 : lines.get(y, line, i));
    for (int64_t i = 0; i < lines.n; ++i) {
      const double gradient = lines.get(g, line, i), result = lines.get(y, line, i);
      lines.set(grad_in, line, i, log ? gradient - std::exp(result) * sum : result * (gradient - sum));
    }
  }
}

}  // namespace

void add_softmax(Kernels& table) {
  table.softmax = softmax;
  table.softmax_grad = softmax_grad;
}

}  // namespace mezzo::reference
