// Batch normalisation of input [N, C, ...]: for each channel, loops over its values.
#include <vector>

#include "tensor/reference/element.h"
#include "tensor/reference/kernel_families.h"

namespace mezzo::reference {
namespace {

/// The values of channel c alone.
View channel(const View& view, int64_t c) {
  View part = view;
  part.data = view.as<char>() + c * view.strides[1] * static_cast<int64_t>(size_of(view.dtype));
  part.shape[1] = 1;
  return part;
}

void statistics(const View& mean, const View& var, const View& input) {
  for (int64_t c = 0; c < input.shape[1]; ++c) {
    const View x = channel(input, c);
    const int64_t n = x.numel();
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; ++i) sum += get(x, i);
    const double center = sum / static_cast<double>(n);
    for (int64_t i = 0; i < n; ++i) squares += (get(x, i) - center) * (get(x, i) - center);
    set(mean, c, center);
    set(var, c, squares / static_cast<double>(n));
  }
}

void forward(const View& out, const View& input, const View& mean, const View& invstd, const View& weight,
             const View& bias) {
  for (int64_t c = 0; c < input.shape[1]; ++c) {
    const View x = channel(input, c), y = channel(out, c);
    const double w = weight.given() ? get(weight, c) : 1, b = bias.given() ? get(bias, c) : 0;
    for (int64_t i = 0; i < x.numel(); ++i) {
      const double xhat = (get(x, i) - get(mean, c)) * get(invstd, c);
      set(y, i, xhat * w + b);
    }
  }
}

void backward(const View& grad_input, const View& grad_weight, const View& grad_bias, const View& grad_out,
              const View& input, const View& mean, const View& invstd, const View& weight,
              bool batch_statistics) {
  for (int64_t c = 0; c < input.shape[1]; ++c) {
    const View x = channel(input, c), g = channel(grad_out, c);
    const int64_t n = x.numel();
    const auto xhat = [&](int64_t i) { return (get(x, i) - get(mean, c)) * get(invstd, c); };
    double sum = 0, products = 0;
    for (int64_t i = 0; i < n; ++i) {
      sum += get(g, i);
      products += get(g, i) * xhat(i);
    }
    set(grad_bias, c, sum);
    set(grad_weight, c, products);
    if (!grad_input.given()) continue;

    const View dx = channel(grad_input, c);
    const double scale = (weight.given() ? get(weight, c) : 1) * get(invstd, c);
    for (int64_t i = 0; i < n; ++i) {
      const double through_statistics = (sum + xhat(i) * products) / static_cast<double>(n);
      set(dx, i, scale * (get(g, i) - (batch_statistics ? through_statistics : 0)));
    }
  }
}

void forward_relu(const View& out, const View& input, const View& mean, const View& invstd,
                  const View& weight, const View& bias, const View& residual) {
  for (int64_t c = 0; c < input.shape[1]; ++c) {
    const View x = channel(input, c), y = channel(out, c);
    const View r = residual.given() ? channel(residual, c) : View();
    for (int64_t i = 0; i < x.numel(); ++i) {
      const double value = (get(x, i) - get(mean, c)) * get(invstd, c) * value_or(weight, c, 1) +
                           value_or(bias, c, 0) + value_or(r, i, 0);
      set(y, i, value < 0 ? 0 : value);
    }
  }
}

void backward_relu(const View& grad_input, const View& grad_weight, const View& grad_bias,
                   const View& grad_residual, const View& grad_out, const View& out, const View& input,
                   const View& mean, const View& invstd, const View& weight, const View& bias,
                   bool batch_statistics) {
  std::vector<double> values(
      static_cast<size_t>(input.numel() + 1));  // never without memory: channel() adds to it
  const View passed{values.data(), DType::float64, input.shape, contiguous_strides(input.shape)};
  std::vector<double> outputs(values.size());
  View y{outputs.data(), DType::float64, input.shape, contiguous_strides(input.shape)};
  if (out.given())
    y = out;
  else
    forward_relu(y, input, mean, invstd, weight, bias, {});
  for (int64_t i = 0; i < input.numel(); ++i) {
    set(passed, i, get(y, i) == 0 ? 0 : get(grad_out, i));
    if (grad_residual.given()) set(grad_residual, i, get(passed, i));
  }
  backward(grad_input, grad_weight, grad_bias, passed, input, mean, invstd, weight, batch_statistics);
}

}  // namespace

void add_batch_norm(Kernels& table) {
  table.batch_norm_statistics = statistics;
  table.batch_norm = forward;
  table.batch_norm_grad = backward;
  table.batch_norm_relu = forward_relu;
  table.batch_norm_relu_grad = backward_relu;
}

}  // namespace mezzo::reference
