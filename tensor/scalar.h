// A number of the caller's: floating, integer or bool, until an op decides what dtype it takes.
#pragma once

#include <concepts>
#include <cstdint>

#include "tensor/dtype.h"

namespace mezzo {

/// A C++ number that stands in an op beside tensors. bool is left out: `backward(true)` must not compile.
template <class T>
concept Number = std::floating_point<T> ||(std::integral<T> && !std::same_as<T, bool>);

/// Either a double or an int64, and which: 300 stays exact, 1.5 stays floating.
class Scalar {
 public:
  template <class T>
  requires std::floating_point<T> || std::integral<T>
  constexpr Scalar(T value)
      : dtype_(std::floating_point<T>  ? DType::float64
               : std::same_as<T, bool> ? DType::bool_
                                       : DType::int64),
        floating_(static_cast<double>(value)),
        integer_(std::integral<T> ? static_cast<int64_t>(value) : 0) {}

  /// float64, int64 or bool_.
  constexpr DType dtype() const { return dtype_; }

  /// The value as T, converted once.
  template <class T>
  constexpr T to() const {
    if constexpr (std::same_as<T, bool>)
      return dtype_ == DType::float64 ? floating_ != 0 : integer_ != 0;
    else if constexpr (std::same_as<T, Half> || std::same_as<T, BFloat16>)
      return T(static_cast<float>(floating_));
    else
      return dtype_ == DType::float64 ? static_cast<T>(floating_) : static_cast<T>(integer_);
  }

 private:
  DType dtype_;
  double floating_;
  int64_t integer_;
};

}  // namespace mezzo
