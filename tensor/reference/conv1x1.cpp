// 1x1 convolutions between batch normalisations, by the formulas in tensor/kernels.h.
#include <vector>

#include "tensor/reference/element.h"
#include "tensor/reference/kernel_families.h"

namespace mezzo::reference {
namespace {

using Values = std::vector<double>;

Values values(const View& view) {
  Values result;
  for (int64_t i = 0; view.given() && i < view.numel(); ++i) result.push_back(get(view, i));
  return result;
}

double xhat(const View& x, const NormRelu& norm, int64_t p, int64_t c) {
  return (get(x, p * x.shape[1] + c) - get(norm.mean, c)) * get(norm.invstd, c);
}

double before_relu(const View& x, const NormRelu& norm, int64_t p, int64_t c) {
  return xhat(x, norm, p, c) * value_or(norm.weight, c, 1) + value_or(norm.bias, c, 0);
}

/// a = norm(x)
Values activations(const View& x, const NormRelu& norm) {
  Values a = values(x);
  if (!norm.mean.given()) return a;
  for (int64_t p = 0; p < x.shape[0]; ++p)
    for (int64_t c = 0; c < x.shape[1]; ++c) {
      const double y = before_relu(x, norm, p, c);
      a[static_cast<size_t>(p * x.shape[1] + c)] = y < 0 ? 0 : y;
    }
  return a;
}

void conv1x1_stats(const View& out, const View& mean, const View& var, const View& x, const NormRelu& norm,
                   const View& weight, const View& bias) {
  const int64_t P = x.shape[0], C = x.shape[1], O = out.shape[1];
  const Values a = activations(x, norm), w = values(weight);
  for (int64_t o = 0; o < O; ++o) {
    double sum = 0, squares = 0;
    for (int64_t p = 0; p < P; ++p) {
      double y = value_or(bias, o, 0);
      for (int64_t c = 0; c < C; ++c)
        y += a[static_cast<size_t>(p * C + c)] * w[static_cast<size_t>(o * C + c)];
      set(out, p * O + o, y);
      sum += get(out, p * O + o);
    }
    const double center = sum / static_cast<double>(P);
    for (int64_t p = 0; p < P; ++p) {
      const double d = get(out, p * O + o) - center;
      squares += d * d;
    }
    set(mean, o, center);
    set(var, o, squares / static_cast<double>(P));
  }
}

void conv1x1_stats_grad(const Conv1x1Grads& grads, const View& grad_out, const View& grad_mean,
                        const View& grad_var, const View& out, const View& mean, const View& x,
                        const NormRelu& norm, const View& weight) {
  const int64_t P = x.shape[0], C = x.shape[1], O = out.shape[1];
  const Values a = activations(x, norm), w = values(weight);
  Values g(static_cast<size_t>(P * O)), weight_grad(w.size()), bias_grad(static_cast<size_t>(O)),
      norm_weight(static_cast<size_t>(C)), norm_bias(static_cast<size_t>(C));
  const auto n = static_cast<double>(P);
  for (int64_t i = 0; i < P * O; ++i) {
    const int64_t o = i % O;
    double gradient = value_or(grad_out, i, 0) + value_or(grad_mean, o, 0) / n;
    // One NaN makes the mean NaN, which is nothing to the gradient where the statistics are not used.
    if (grad_var.given()) gradient += get(grad_var, o) * 2 * (get(out, i) - get(mean, o)) / n;
    g[static_cast<size_t>(i)] = gradient;
    bias_grad[static_cast<size_t>(o)] += gradient;
  }
  for (int64_t p = 0; p < P; ++p) {
    for (int64_t c = 0; c < C; ++c) {
      double da = 0;
      for (int64_t o = 0; o < O; ++o) {
        const double gradient = g[static_cast<size_t>(p * O + o)];
        da += gradient * w[static_cast<size_t>(o * C + c)];
        weight_grad[static_cast<size_t>(o * C + c)] += gradient * a[static_cast<size_t>(p * C + c)];
      }
      if (norm.mean.given()) {
        if (before_relu(x, norm, p, c) <= 0) da = 0;
        norm_bias[static_cast<size_t>(c)] += da;
        norm_weight[static_cast<size_t>(c)] += da * xhat(x, norm, p, c);
        da *= get(norm.invstd, c) * value_or(norm.weight, c, 1);
      }
      if (grads.x.given()) set(grads.x, p * C + c, da);
    }
  }
  const auto save = [](const View& view, const Values& from) {
    for (size_t i = 0; view.given() && i < from.size(); ++i) set(view, static_cast<int64_t>(i), from[i]);
  };
  save(grads.weight, weight_grad);
  save(grads.bias, bias_grad);
  save(grads.norm_weight, norm_weight);
  save(grads.norm_bias, norm_bias);
}

}  // namespace

void add_conv1x1(Kernels& table) {
  table.conv1x1_stats = conv1x1_stats;
  table.conv1x1_stats_grad = conv1x1_stats_grad;
}

}  // namespace mezzo::reference
