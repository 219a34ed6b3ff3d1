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

const std::vector<Layout>& layouts() {
  static const std::vector<Layout> all = {
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
  static const std::string_view in_gradients = "runs in the gradients of the pointwise rows, which have it";
  static const std::string_view images = "takes 4-d tensors";
  static const std::string_view no_scalar = "needs at least one dimension";
  static const std::string_view floats = "is defined for floating dtypes";
  static const std::string_view as_pytorch = "is refused for bool, as in PyTorch";
  static const std::vector<Hole> all = {};
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
  return 4;
}

uint64_t seed_samples() {
  const char* text = std::getenv("MEZZO_TEST_SEED");
  const uint64_t seed = text ? std::strtoull(text, nullptr, 10) : 1;
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
