#include "tests/op_table/layouts.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "tensor/random.h"
#include "tests/support.h"

namespace mezzo {

namespace {

Tensor contiguous(const Tensor& x) { return x; }

/// Every second element of a larger tensor. The others are NaN, so that a kernel that reads them shows it.
Tensor strided(const Tensor& x) {
  if (x.numel() == 0) return {};
  const Tensor gaps = full(x.shape(), std::nan(""), {.dtype = x.dtype(), .device = x.device()});
  return stack({gaps, x}, -1).select(-1, 1);
}

/// Elements in the order of the reversed dimensions.
Tensor transposed(const Tensor& x) {
  Shape reversed;
  for (int d = x.dim() - 1; d >= 0; --d) reversed.push_back(d);
  const Tensor result = x.permute(reversed).contiguous().permute(reversed);
  return result.is_contiguous() ? Tensor() : result;
}

/// One slice of x repeated along dimension d, with stride 0.
Tensor expanded_along(const Tensor& x, int d) { return x.narrow(d, 0, 1).expand(x.shape()); }

Tensor expanded_first(const Tensor& x) {
  for (int d = 0; d < x.dim() && x.numel() > 0; ++d) {
    if (x.size(d) > 1) return expanded_along(x, d);
  }
  return {};
}

Tensor expanded_last(const Tensor& x) {
  for (int d = x.dim() - 1; d >= 0 && x.numel() > 0; --d) {
    if (x.size(d) > 1) return expanded_along(x, d);
  }
  return {};
}

Tensor in_channels_last(const Tensor& x) {
  if (x.dim() != 4) return {};
  const Tensor result = x.contiguous(channels_last);
  return result.is_contiguous() ? Tensor() : result;
}

}  // namespace

const std::vector<OperandLayout>& layouts() {
  static const std::vector<OperandLayout> all = {
      {"contiguous", contiguous},   {"strided", strided},        {"transposed", transposed},
      {"expanded", expanded_first}, {"expanded", expanded_last}, {"channels-last", in_channels_last},
  };
  return all;
}

bool has_kind(std::string_view kind, const Tensors& inputs, const Tensors& outputs) {
  const auto holds = [&](const Tensor& x) { return kind == "empty" ? x.numel() == 0 : x.dim() == 0; };
  return std::any_of(inputs.begin(), inputs.end(), holds) ||
         (kind == "empty" && std::any_of(outputs.begin(), outputs.end(), holds));
}

const std::vector<Hole>& holes() {
  static const std::vector<Hole> all = [] {
    std::vector<Hole> list;
    const auto add = [&](std::string_view reason, std::initializer_list<std::string_view> kinds,
                         std::initializer_list<std::string_view> ops) {
      for (std::string_view op : ops) {
        for (std::string_view kind : kinds) list.push_back({op, kind, reason});
      }
    };
    add("needs dimensions", {"0-d"},
        {"slice", "split", "embed", "matmul", "linear", "linear_relu", "gelu_linear", "conv2d",
         "conv2d_input_grad", "conv2d_weight_grad", "max_pool2d", "max_pool2d_grad", "batch_norm",
         "batch_norm_grad", "batch_norm_relu", "conv1x1_stats", "layer_norm", "layer_norm_grad",
         "scaled_dot_product_attention"});
    add("throws where its strides need a copy", {"transposed", "expanded"}, {"view"});
    add("refused, as in PyTorch", {"bool"},
        {"sub",    "neg",          "abs",       "relu",        "log_sigmoid", "softsign",
         "fmod",   "floor_divide", "remainder", "pow",         "clamp_min",   "clamp_max",
         "floor",  "ceil",         "round",     "trunc",       "slope",       "mean",
         "matmul", "linear",       "addmm",     "linear_relu", "gelu_linear"});
    add("takes matrices", {"channels-last"}, {"addmm"});
    add("refused, as in PyTorch", {"bool"}, {"var", "std", "norm"});
    add("positions are integers", {"bool"},
        {"gather", "index_select", "scatter", "scatter_add", "embedding"});
    add("a gradient, or what needs fractions", {"int64", "int32", "uint8"},
        {"slope", "mean", "var", "std", "norm", "linear_relu", "gelu_linear"});
    add("a layer or a loss of floating values", {"int64", "int32", "uint8", "bool"},
        {"conv2d",
         "conv2d_input_grad",
         "conv2d_weight_grad",
         "max_pool2d",
         "max_pool2d_grad",
         "batch_norm",
         "batch_norm_grad",
         "batch_norm_relu",
         "conv1x1_stats",
         "layer_norm",
         "layer_norm_grad",
         "scaled_dot_product_attention",
         "softmax",
         "log_softmax",
         "softmax_grad",
         "mse_loss",
         "l1_loss",
         "nll_loss",
         "cross_entropy",
         "binary_cross_entropy",
         "binary_cross_entropy_with_logits"});
    return list;
  }();
  return all;
}

bool is_hole(std::string_view op, std::string_view kind) {
  return std::any_of(holes().begin(), holes().end(),
                     [&](const Hole& hole) { return hole.op == op && hole.kind == kind; });
}

double epsilon_of(DType dtype) {
  if (dtype == float64) return std::numeric_limits<double>::epsilon();
  return dtype == float32 ? std::numeric_limits<float>::epsilon() : dtype == float16 ? 0x1p-10 : 0x1p-7;
}

double allowed_epsilons(std::string_view op, DType dtype) {
  struct Allowance {
    std::string_view op;
    double epsilons, in_half;  ///< in_half: of the 16-bit types, which are added in float32
    std::string_view reason;
  };
  static constexpr double kUsual = 4;  // a few roundings
  static constexpr std::string_view sums = "adds in another order than the reference";
  static constexpr std::string_view slope =
      "its slope reads the rounded output, and is small where that is near 1";
  static constexpr Allowance list[] = {
      {"tanh", kUsual, 16, slope},
      {"sigmoid", kUsual, 16, slope},
      {"softmax", kUsual, 64, "its gradient y (g - sum of g y) reads the rounded output, and cancels"},
      {"softmax_grad", kUsual, 64,
       "its own gradient runs through plain ops, each of which rounds, and cancels"},
      {"log_softmax", kUsual, 32, slope},
      {"lerp", 64, 64, "the gradient of a 0-d weight adds in another order, and cancels"},
      {"mean", 16, kUsual, sums},
      {"sum", 16, kUsual, sums},
      {"matmul", 16, 16, "as a sum; and gradients of a broadcast batch are rounded before they are added"},
      {"linear", 16, kUsual, sums},
      {"linear_relu", 16, kUsual, sums},
      {"gelu_linear", 16, 16, "gelu is rounded before the product, which cancels"},
      {"addmm", 16, 16, "the product is rounded before c is added, and cancels"},
      {"conv2d", 16, kUsual, sums},
      {"conv2d_input_grad", 16, kUsual, sums},
      {"conv2d_weight_grad", 16, kUsual, sums},
      {"conv1x1_stats", 16, 64, "the variance of rounded results, where that is little but their rounding"},
      {"mse_loss", 16, kUsual, sums},
      {"l1_loss", 16, kUsual, sums},
      {"nll_loss", 16, kUsual, sums},
      {"cross_entropy", 16, kUsual, sums},
      {"binary_cross_entropy", 16, kUsual, sums},
      {"binary_cross_entropy_with_logits", 16, kUsual, sums},
      {"batch_norm", 2048, kUsual,
       "an expanded channel has no variance: 1 / sqrt(eps) = 316 multiplies its rounding"},
      {"batch_norm_relu", 2048, 16, "as batch_norm"},
      {"batch_norm_grad", 2048, 32,
       "as batch_norm; and its own gradient runs through plain ops, each of which rounds"},
      {"layer_norm", 2048, kUsual, "as batch_norm, of an expanded row"},
      {"layer_norm_grad", 4096, 32, "as batch_norm_grad"},
      {"scaled_dot_product_attention", 16, 16,
       "adds in another order; gradients of scores cancel, as softmax's"},
  };
  const auto found =
      std::find_if(std::begin(list), std::end(list), [&](const Allowance& a) { return a.op == op; });
  if (found == std::end(list)) return kUsual;
  return is_half(dtype) ? found->in_half : found->epsilons;
}

uint64_t seed_samples() {
  const uint64_t seed = test_seed();
  manual_seed(seed);
  return seed;
}

std::vector<Sample> samples_on_device(OpId id) {
  std::vector<Sample> samples = samples_of(id);
  for (Sample& sample : samples) {
    for (Tensor& x : sample.inputs) x = x.to(test_device());
  }
  return samples;
}

}  // namespace mezzo
