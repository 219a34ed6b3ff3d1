// Pooling: for each window, a loop over its cells.
#include <limits>

#include "tensor/reference/element.h"
#include "tensor/reference/kernel_families.h"

namespace mezzo::reference {
namespace {

int64_t offset_at(const View& view, int64_t n, int64_t c, int64_t i, int64_t j) {
  return n * view.strides[0] + c * view.strides[1] + i * view.strides[2] + j * view.strides[3];
}

/// f(n, c, i, j) for each window, `out` having an element for each.
template <class F>
void for_windows(const View& out, F&& f) {
  for (int64_t n = 0; n < out.shape[0]; ++n)
    for (int64_t c = 0; c < out.shape[1]; ++c)
      for (int64_t i = 0; i < out.shape[2]; ++i)
        for (int64_t j = 0; j < out.shape[3]; ++j) f(n, c, i, j);
}

/// Row and column of `input` where window (i, j) has its cell number `cell`.
struct Place {
  int64_t row, column;
  bool inside;

  Place(const PoolGeometry& g, const View& input, int64_t i, int64_t j, int64_t cell)
      : row(i * g.stride[0] + cell / g.kernel[1] * g.dilation[0] - g.padding[0]),
        column(j * g.stride[1] + cell % g.kernel[1] * g.dilation[1] - g.padding[1]),
        inside(cell >= 0 && cell < g.kernel[0] * g.kernel[1] && row >= 0 && row < input.shape[2] &&
               column >= 0 && column < input.shape[3]) {}
};

void max_pool2d(const View& out, const View& cells, const View& input, const PoolGeometry& geometry) {
  for_windows(out, [&](int64_t n, int64_t c, int64_t i, int64_t j) {
    double largest = -std::numeric_limits<double>::infinity();
    int64_t winner = -1;
    for (int64_t cell = 0; cell < geometry.kernel[0] * geometry.kernel[1]; ++cell) {
      const Place place(geometry, input, i, j, cell);
      if (!place.inside) continue;
      const auto x = load<double>(input, offset_at(input, n, c, place.row, place.column));
      if (winner >= 0 && !(x > largest) && x == x) continue;
      largest = x;
      winner = cell;
    }
    store(out, offset_at(out, n, c, i, j), largest);
    if (cells.given()) store(cells, offset_at(cells, n, c, i, j), winner);
  });
}

void max_pool2d_grad(const View& grad_input, const View& grad_out, const View& cells,
                     const PoolGeometry& geometry) {
  std::vector<double> sums(static_cast<size_t>(grad_input.numel()));
  const View all{sums.data(), DType::float64, grad_input.shape, contiguous_strides(grad_input.shape)};
  for_windows(grad_out, [&](int64_t n, int64_t c, int64_t i, int64_t j) {
    const Place place(geometry, all, i, j, load<int64_t>(cells, offset_at(cells, n, c, i, j)));
    if (!place.inside) return;
    sums[static_cast<size_t>(offset_at(all, n, c, place.row, place.column))] +=
        load<double>(grad_out, offset_at(grad_out, n, c, i, j));
  });
  for (int64_t i = 0; i < all.numel(); ++i) set(grad_input, i, sums[static_cast<size_t>(i)]);
}

}  // namespace

void add_pool(Kernels& table) {
  table.max_pool2d = max_pool2d;
  table.max_pool2d_grad = max_pool2d_grad;
}

}  // namespace mezzo::reference
