// How to point at parts of a tensor: x.index({0, Slice(1, None), Ellipsis, positions}), x[2].
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tensor/tensor.h"

namespace mezzo {

/// Of a range: an end that is left open. As an index: a new dimension of size 1.
inline constexpr std::nullopt_t None = std::nullopt;

/// As many whole dimensions as the other indices leave over. "..." says the same.
struct EllipsisType {};
inline constexpr EllipsisType Ellipsis;

/// The range start, start + step, ... below stop, Python's `start:stop:step`: negative ends count from the
/// end of the dimension, and what lies outside it is left out.
struct Slice {
  std::optional<int64_t> start, stop;
  int64_t step;
  Slice(std::optional<int64_t> start = None, std::optional<int64_t> stop = None, int64_t step = 1)
      : start(start), stop(stop), step(step) {}
};

/// One entry of an index. Tensors of int64 or int32 hold positions (negative ones count from the end), bool
/// ones are masks of one or more dimensions.
struct TensorIndex {
  std::variant<int64_t, Slice, EllipsisType, std::nullopt_t, Tensor> value;

  template <std::integral T>
  TensorIndex(T position) : value(static_cast<int64_t>(position)) {}
  TensorIndex(const Slice& range) : value(range) {}
  TensorIndex(EllipsisType ellipsis) : value(ellipsis) {}
  TensorIndex(std::nullopt_t none) : value(none) {}
  TensorIndex(Tensor positions) : value(std::move(positions)) {}
  TensorIndex(bool) = delete;
  /// "..." alone; anything else throws Error.
  TensorIndex(const char* dots);
};

/// What indexing gives: a tensor, and a place to assign to: `x[0] = y`, `x.index({mask}) = 0`. It is a view
/// of x where integers and ranges alone were used, else a copy, from which an assignment goes on to x. A
/// variable of this type is a handle like any other: assigning to it makes it another tensor.
class Indexed : public Tensor {
 public:
  explicit Indexed(Tensor view) : Tensor(std::move(view)) {}
  Indexed(Tensor copy, Tensor base, std::vector<TensorIndex> indices)
      : Tensor(std::move(copy)), base_(std::move(base)), indices_(std::move(indices)) {}
  Indexed(const Indexed&) = default;

  Indexed& operator=(const Tensor& value) &&;
  Indexed& operator=(const Indexed& value) && { return std::move(*this) = static_cast<const Tensor&>(value); }
  Indexed& operator=(const Tensor& other) & { return *this = Indexed(other); }
  Indexed& operator=(const Indexed&) & = default;
  Indexed& operator+=(const Tensor& b) && { return std::move(*this) = add(b); }
  Indexed& operator-=(const Tensor& b) && { return std::move(*this) = sub(b); }
  Indexed& operator*=(const Tensor& b) && { return std::move(*this) = mul(b); }
  Indexed& operator/=(const Tensor& b) && { return std::move(*this) = div(b); }
  Tensor& operator+=(const Tensor& b) & { return add_(b); }
  Tensor& operator-=(const Tensor& b) & { return sub_(b); }
  Tensor& operator*=(const Tensor& b) & { return mul_(b); }
  Tensor& operator/=(const Tensor& b) & { return div_(b); }

 private:
  Tensor base_;  ///< of a copy: what it was taken from
  std::vector<TensorIndex> indices_;
};

}  // namespace mezzo
