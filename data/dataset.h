// Datasets: what a DataLoader takes batches from. Any class with these two members is one:
//
//   int64_t size() const;                                  the number of its examples
//   Batch get_batch(const Tensor& positions) const;        those at the positions, int64 [N], each below
//   size()
#pragma once

#include <array>
#include <concepts>
#include <span>

#include "tensor/tensor.h"

namespace mezzo::data {

/// The size of dimension 0 of all tensors; throws Error if they have none or differ in it.
int64_t common_length(std::span<const Tensor> tensors);

/// N tensors of one length, such as images and their labels: example i is row i of each. Shares their memory.
template <size_t N>
class TensorDataset {
 public:
  /// Throws Error if a tensor has no dimensions or the lengths differ.
  template <std::convertible_to<Tensor>... T>
  requires(sizeof...(T) == N) explicit TensorDataset(const T&... tensors)
      : tensors_{tensors...}, size_(common_length(tensors_)) {}

  int64_t size() const { return size_; }
  /// Example i, without the dimension of the batch: `auto [image, label] = dataset.get(i)`.
  std::array<Tensor, N> get(int64_t i) const {
    return of_each([&](const Tensor& x) { return x.select(0, i); });
  }
  /// Copies of the examples at the positions.
  std::array<Tensor, N> get_batch(const Tensor& positions) const {
    return of_each([&](const Tensor& x) { return x.index_select(0, positions.to(x.device())); });
  }

 private:
  std::array<Tensor, N> of_each(const auto& f) const {
    std::array<Tensor, N> results;
    for (size_t i = 0; i < N; ++i) results[i] = f(tensors_[i]);
    return results;
  }

  std::array<Tensor, N> tensors_;
  int64_t size_;
};

template <std::convertible_to<Tensor>... T>
TensorDataset(const T&...) -> TensorDataset<sizeof...(T)>;

}  // namespace mezzo::data
