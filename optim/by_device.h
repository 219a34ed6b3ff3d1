// Tensors in lists, one for each device, for kernels that take many at once.
#pragma once

#include <utility>
#include <vector>

#include "tensor/kernels.h"
#include "tensor/tensor.h"

namespace mezzo::optim {

/// Lists of what a kernel is to work on, one for each device.
template <class T>
class ByDevice {
 public:
  std::vector<T>& operator[](const Device& device) {
    for (auto& [known, list] : lists_) {
      if (known == device) return list;
    }
    return lists_.emplace_back(device, std::vector<T>()).second;
  }
  auto begin() const { return lists_.begin(); }
  auto end() const { return lists_.end(); }

 private:
  std::vector<std::pair<Device, std::vector<T>>> lists_;
};

/// The memory of tensors.
inline ByDevice<View> views_by_device(const std::vector<Tensor>& tensors) {
  ByDevice<View> views;
  for (const Tensor& tensor : tensors) views[tensor.device()].push_back(tensor.view_of_memory());
  return views;
}

}  // namespace mezzo::optim
