#include "amp/unscaled.h"

#include <algorithm>

#include "tensor/tensor_impl.h"

namespace mezzo::amp {

namespace {

/// Where a gradient lies: somewhere in [begin, end), everywhere if it is dense.
struct Extent {
  explicit Extent(const Tensor& x) : view(distinct_elements(x)), begin(view.as<std::byte>()), end(begin) {
    if (view.numel() == 0) return;
    int64_t last = 0;
    for (int d = 0; d < view.shape.dim(); ++d) last += (view.shape[d] - 1) * view.strides[d];
    end += (last + 1) * static_cast<int64_t>(size_of(view.dtype));
  }
  bool overlaps(const Extent& other) const { return begin < other.end && other.begin < end; }
  bool operator==(const Extent& other) const {
    if (begin != other.begin || end != other.end || view.dtype != other.view.dtype) return false;
    return (view.shape == other.view.shape && view.strides == other.view.strides) ||
           (is_dense(view.shape, view.strides) && is_dense(other.view.shape, other.view.strides));
  }

  View view;
  const std::byte *begin, *end;
};

}  // namespace

const UnscaledGradients::Entry* UnscaledGradients::find(const Tensor& gradient) const {
  const auto found = entries_.find(gradient.impl()->storage.get());
  if (found == entries_.end()) return nullptr;
  const Extent extent(gradient);
  for (const Entry& entry : found->second) {
    const Extent other(entry.gradient);
    if (!extent.overlaps(other)) continue;
    if (extent == other) return &entry;
    fail("GradScaler", "the memory of two gradients is shared in part, so they cannot be unscaled once each",
         {{"gradient", gradient}, {"other", entry.gradient}}, "set_grad(grad.clone()) gives one its own");
  }
  return nullptr;
}

void UnscaledGradients::insert(const Entry& entry) {
  auto& entries = entries_[entry.gradient.impl()->storage.get()];
  const Extent extent(entry.gradient);
  std::erase_if(entries, [&](const Entry& other) { return extent == Extent(other.gradient); });
  entries.push_back(entry);
}

View distinct_elements(const Tensor& gradient) {
  View view = gradient.view_of_memory();
  for (int d = view.shape.dim() - 1; d >= 0; --d) {
    if (view.shape[d] != 1 && (view.strides[d] != 0 || view.shape[d] == 0)) continue;
    view.shape.erase(d);
    view.strides.erase(d);
  }
  return view;
}

}  // namespace mezzo::amp
