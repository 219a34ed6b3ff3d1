// Datasets: what a DataLoader takes batches from. Any class with these two members is one:
//
//   int64_t size() const;                                  the number of its examples
//   Batch get_batch(const Tensor& positions) const;        those at the positions, int64 [N], each below
//   size()
#pragma once

#include <array>
#include <concepts>
#include <span>
#include <utility>
#include <vector>

#include "tensor/tensor.h"

namespace mezzo::data {

/// The positions 0 ... size - 1 in random order (of the default generator), cut into parts. Throws Error
/// unless the lengths add up to `size`.
std::vector<Tensor> random_parts(int64_t size, const std::vector<int64_t>& lengths);

/// The size of dimension 0 of all tensors; throws Error if they have none or differ in it.
int64_t common_length(std::span<const Tensor> tensors);

/// N tensors of one length, such as images and their labels: example i is row i of each. Shares their memory.
template <size_t N>
class TensorDataset {
 public:
  /// Throws Error if a tensor has no dimensions or the lengths differ.
  explicit TensorDataset(std::array<Tensor, N> tensors)
      : tensors_(std::move(tensors)), size_(common_length(tensors_)) {}
  template <std::convertible_to<Tensor>... T>
  requires(sizeof...(T) == N) explicit TensorDataset(const T&... tensors)
      : TensorDataset(std::array<Tensor, N>{tensors...}) {}

  int64_t size() const { return size_; }
  const std::array<Tensor, N>& tensors() const { return tensors_; }
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

/// Copies of a dataset's examples in parts of the given lengths, each example in one of them, at random:
/// training and what is held out. Throws Error unless the lengths add up to its size.
template <size_t N>
std::vector<TensorDataset<N>> random_split(const TensorDataset<N>& dataset,
                                           const std::vector<int64_t>& lengths) {
  std::vector<TensorDataset<N>> parts;
  for (const Tensor& positions : random_parts(dataset.size(), lengths))
    parts.emplace_back(dataset.get_batch(positions));
  return parts;
}

}  // namespace mezzo::data
