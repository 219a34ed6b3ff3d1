// Gradients together, limited by their norm or set to zero: all elements one after the other.
#include <cmath>

#include "tensor/reference/element.h"
#include "tensor/reference/kernel_families.h"

namespace mezzo::reference {
namespace {

void norm(const View& total, std::span<const View> tensors, double p) {
  double sum = 0;
  for (const View& tensor : tensors) {
    for (int64_t i = 0; i < tensor.numel(); ++i) {
      const double size = std::abs(get(tensor, i));
      if (!std::isinf(p))
        sum += std::pow(size, p);
      else if (size > sum || std::isnan(size))
        sum = size;
    }
  }
  set(total, 0, std::isinf(p) ? sum : std::pow(sum, 1 / p));
}

void clip(std::span<const View> tensors, const View& total, double max_norm) {
  const double factor = max_norm / (get(total, 0) + 1e-6);
  if (factor >= 1) return;
  for (const View& tensor : tensors) {
    for (int64_t i = 0; i < tensor.numel(); ++i) set(tensor, i, get(tensor, i) * factor);
  }
}

void zero(std::span<const View> tensors) {
  for (const View& tensor : tensors) {
    for (int64_t i = 0; i < tensor.numel(); ++i) set(tensor, i, 0);
  }
}

}  // namespace

void add_clip(Kernels& table) {
  table.norm = norm;
  table.clip = clip;
  table.zero = zero;
}

}  // namespace mezzo::reference
