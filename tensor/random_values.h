// From Philox blocks to numbers of a distribution: the value of element i, the same on every device. Elements
// are counted in the row-major order of the view that is filled.
//
// A draw is what an element takes from the stream: a 32-bit word for float and 16-bit elements (element i:
// word i % 4 of block i / 4), two words for double (element i: half i % 2 of block i / 2). Formulas use
// std::fma where a compiler is free to contract or not, so that all give the same bits.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <type_traits>

#include "tensor/dtype.h"
#include "tensor/random.h"

namespace mezzo {

/// The unsigned integer that an element computed in T is drawn as.
template <class T>
using Draw = std::conditional_t<std::is_same_v<T, double>, uint64_t, uint32_t>;

/// Elements computed in T that a block serves.
template <class T>
inline constexpr int64_t kDrawsPerBlock = std::is_same_v<T, double> ? 2 : 4;

/// The draws of block `block` after the state's offset.
template <class T>
constexpr std::array<Draw<T>, kDrawsPerBlock<T>> draws_of_block(PhiloxState state, int64_t block) {
  const auto words = philox(state.seed, state.offset + static_cast<uint64_t>(block));
  if constexpr (std::is_same_v<T, float>)
    return words;
  else
    return {uint64_t{words[1]} << 32 | words[0], uint64_t{words[3]} << 32 | words[2]};
}

/// A draw as a multiple of 2^-24 (float) or 2^-53 (double) in [0, 1).
constexpr float unit_interval(uint32_t draw) { return static_cast<float>(draw >> 8) * 0x1p-24f; }
constexpr double unit_interval(uint64_t draw) { return static_cast<double>(draw >> 11) * 0x1p-53; }

/// Smallest value of E that is not below `bound`, for a finite bound.
template <class E>
E smallest_from(double bound) {
  if constexpr (std::is_floating_point_v<E>) {
    const E nearest = static_cast<E>(bound);
    return nearest < bound ? std::nextafter(nearest, std::numeric_limits<E>::infinity()) : nearest;
  } else {
    E value(static_cast<float>(bound));
    if (value >= bound) return value;
    // The bits of the 16-bit types count up from 0 and, with the sign set, down to -0.
    if (value == 0)
      value.bits = 1;
    else
      value.bits = static_cast<uint16_t>(value > 0 ? value.bits + 1 : value.bits - 1);
    return value;
  }
}

/// Uniform numbers in [low, high) of a dtype, computed in T. Clamped to the dtype's own values in that range,
/// so that rounding to the dtype does not leave it.
template <class T>
class Uniform {
 public:
  Uniform(DType dtype, double low, double high)
      : low_(static_cast<T>(low)), range_(static_cast<T>(high - low)) {
    dispatch(dtype, [&]<class E>(E) {
      if constexpr (is_floating(dtype_of<E>)) {
        least_ = static_cast<T>(smallest_from<E>(low));
        // The largest value below `high`, unless the range holds none.
        most_ =
            -static_cast<T>(smallest_from<E>(std::nextafter(-high, std::numeric_limits<double>::infinity())));
        most_ = std::max(least_, most_);
      }
    });
  }
  constexpr T operator()(Draw<T> draw) const {
    return std::min(std::max(std::fma(range_, unit_interval(draw), low_), least_), most_);
  }

 private:
  T low_, range_, least_ = 0, most_ = 0;
};

/// Normal numbers, computed in T, in pairs: z = sqrt(-2 ln u) (cos, sin)(2 pi v) with u in (0, 1], v in [0,
/// 1). G. E. P. Box and M. E. Muller (1958).
template <class T>
class Normal {
 public:
  Normal(double mean, double std) : mean_(static_cast<T>(mean)), std_(static_cast<T>(std)) {}
  constexpr std::array<T, 2> operator()(Draw<T> first, Draw<T> second) const {
    T u;  // from all the bits of a float's draw: 24 of them would end the tails at 5.8
    if constexpr (std::is_same_v<T, float>)
      u = (static_cast<T>(first) + T(1)) * T(0x1p-32);
    else
      u = (static_cast<T>(first >> 11) + T(1)) * T(0x1p-53);
    const T radius = std::sqrt(T(-2) * std::log(u)),
            angle = 2 * std::numbers::pi_v<T> * unit_interval(second);
    return {std::fma(std_, radius * std::cos(angle), mean_), std::fma(std_, radius * std::sin(angle), mean_)};
  }

 private:
  T mean_, std_;
};

/// Element i of a tensor of `dtype` filled with uniform numbers in [low, high), before it is rounded to the
/// dtype.
inline double uniform_value(PhiloxState state, DType dtype, int64_t i, double low, double high) {
  const auto value = [&]<class T>(T) -> double {
    constexpr int64_t n = kDrawsPerBlock<T>;
    return Uniform<T>(dtype, low, high)(draws_of_block<T>(state, i / n)[static_cast<size_t>(i % n)]);
  };
  return dtype == DType::float64 ? value(double{}) : value(float{});
}

/// Element i of a tensor of `dtype` filled with normal numbers, before it is rounded to the dtype.
inline double normal_value(PhiloxState state, DType dtype, int64_t i, double mean, double std) {
  const auto value = [&]<class T>(T) -> double {
    constexpr int64_t n = kDrawsPerBlock<T>;
    const auto draws = draws_of_block<T>(state, i / n);
    const auto even = static_cast<size_t>(i % n / 2 * 2), odd = static_cast<size_t>(i % 2);
    return Normal<T>(mean, std)(draws[even], draws[even + 1])[odd];
  };
  return dtype == DType::float64 ? value(double{}) : value(float{});
}

}  // namespace mezzo
