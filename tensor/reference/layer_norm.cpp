// Layer normalisation: for each row, loops over its values.
#include <cmath>
#include <vector>

#include "tensor/reference/element.h"
#include "tensor/reference/kernel_families.h"

namespace mezzo::reference {
namespace {

void forward(const View& out, const View& mean, const View& rstd, const View& input, const View& weight,
             const View& bias, double eps) {
  const int64_t rows = mean.numel(), n = rows ? input.numel() / rows : 0;
  for (int64_t row = 0; row < rows; ++row) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; ++i) sum += get(input, row * n + i);
    const double center = sum / static_cast<double>(n);
    for (int64_t i = 0; i < n; ++i)
      squares += (get(input, row * n + i) - center) * (get(input, row * n + i) - center);
    const double scale = 1 / std::sqrt(squares / static_cast<double>(n) + eps);
    set(mean, row, center);
    set(rstd, row, scale);
    for (int64_t i = 0; i < n; ++i) {
      const double xhat = (get(input, row * n + i) - center) * scale;
      set(out, row * n + i, xhat * (weight.given() ? get(weight, i) : 1) + (bias.given() ? get(bias, i) : 0));
    }
  }
}

void backward(const View& grad_input, const View& grad_weight, const View& grad_bias, const View& grad_out,
              const View& input, const View& mean, const View& rstd, const View& weight) {
  const int64_t rows = mean.numel(), n = grad_weight.numel();
  std::vector<double> dw(static_cast<size_t>(n)), db(static_cast<size_t>(n));
  for (int64_t row = 0; row < rows; ++row) {
    const auto g = [&](int64_t i) { return get(grad_out, row * n + i); };
    const auto xhat = [&](int64_t i) { return (get(input, row * n + i) - get(mean, row)) * get(rstd, row); };
    const auto u = [&](int64_t i) { return g(i) * (weight.given() ? get(weight, i) : 1); };
    double sum = 0, products = 0;
    for (int64_t i = 0; i < n; ++i) {
      dw[static_cast<size_t>(i)] += g(i) * xhat(i);
      db[static_cast<size_t>(i)] += g(i);
      sum += u(i);
      products += u(i) * xhat(i);
    }
    for (int64_t i = 0; i < n; ++i)
      set(grad_input, row * n + i,
          get(rstd, row) * (u(i) - (sum + xhat(i) * products) / static_cast<double>(n)));
  }
  for (int64_t i = 0; i < n; ++i) {
    set(grad_weight, i, dw[static_cast<size_t>(i)]);
    set(grad_bias, i, db[static_cast<size_t>(i)]);
  }
}

}  // namespace

void add_layer_norm(Kernels& table) {
  table.layer_norm = forward;
  table.layer_norm_grad = backward;
}

}  // namespace mezzo::reference
