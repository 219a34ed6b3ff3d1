// What is derived from a struct of pointwise.h: its number, what each slope reads, and its second
// derivatives.
#pragma once

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include "tensor/pointwise.h"

namespace mezzo::pointwise {

/// Position of S in Ops; a struct that is not listed does not compile.
template <class S>
inline constexpr size_t index = []<class... All>(std::tuple<All...>*) {
  static_assert((std::is_same_v<S, All> || ...), "list the op in pointwise::Ops");
  size_t i = 0;
  (void)((std::is_same_v<S, All> || (++i, false)) || ...);
  return i;
}(static_cast<Ops*>(nullptr));

/// True if S has a slope for operand i.
template <class S, int i>
inline constexpr bool differentiable = [] {
  if constexpr (S::arity == 1) return requires {
      S::reads;
    };
  else if constexpr (i == 0)
    return requires { S::slope0(0., 0.); }
  || requires { S::slope0(0., 0., 0.); };
  else if constexpr (i == 1) return requires {
    S::slope1(0., 0.);
  }
  || requires { S::slope1(0., 0., 0.); };
  else return requires {
    S::slope2(0., 0., 0.);
  };
}();

/// What slope i of S reads.
template <class S, int i>
inline constexpr unsigned reads = [] {
  if constexpr (!differentiable<S, i>)
    return unsigned{nothing};
  else if constexpr (S::arity == 1)
    return unsigned{S::reads};
  else if constexpr (i == 0)
    return unsigned{S::reads0};
  else if constexpr (i == 1)
    return unsigned{S::reads1};
  else
    return unsigned{S::reads2};
}();

/// Slope i of S at its operands; a unary op's slope takes the one value that it reads.
template <class S, int i, class... T>
constexpr auto slope(T... x) {
  if constexpr (S::arity == 1)
    return S::slope(x...);
  else if constexpr (i == 0)
    return S::slope0(x...);
  else if constexpr (i == 1)
    return S::slope1(x...);
  else
    return S::slope2(x...);
}

/// A value with its derivative: a formula called with Duals gives its own slope, which is how the second
/// gradient of every op here comes from the first.
template <class T>
struct Dual {
  T value, slope;
  constexpr Dual(T value, T slope) : value(value), slope(slope) {}
  constexpr explicit Dual(double constant) : value(static_cast<T>(constant)), slope(static_cast<T>(0)) {}

  friend constexpr Dual operator+(Dual a, Dual b) { return {a.value + b.value, a.slope + b.slope}; }
  friend constexpr Dual operator-(Dual a, Dual b) { return {a.value - b.value, a.slope - b.slope}; }
  friend constexpr Dual operator*(Dual a, Dual b) {
    return {a.value * b.value, a.slope * b.value + a.value * b.slope};
  }
  friend constexpr Dual operator/(Dual a, Dual b) {
    const T quotient = a.value / b.value;
    return {quotient, (a.slope - quotient * b.slope) / b.value};
  }
  friend constexpr Dual operator-(Dual a) { return {-a.value, -a.slope}; }
  friend constexpr auto operator==(Dual a, Dual b) { return a.value == b.value; }
  friend constexpr auto operator!=(Dual a, Dual b) { return a.value != b.value; }
  friend constexpr auto operator<(Dual a, Dual b) { return a.value < b.value; }
  friend constexpr auto operator>(Dual a, Dual b) { return a.value > b.value; }
  friend constexpr Dual exp(Dual a) {
    const T y = exp(a.value);
    return {y, a.slope * y};
  }
  friend constexpr Dual sin(Dual a) { return {sin(a.value), a.slope * cos(a.value)}; }
  friend constexpr Dual cos(Dual a) { return {cos(a.value), -(a.slope * sin(a.value))}; }
  friend constexpr Dual log(Dual a) { return {log(a.value), a.slope / a.value}; }
  friend constexpr Dual tanh(Dual a) { return {tanh(a.value), a.slope * Tanh::slope(tanh(a.value))}; }
  friend constexpr Dual erf(Dual a) { return {erf(a.value), a.slope * Erf::slope(a.value)}; }
  friend constexpr Dual sigmoid(Dual a) {
    return {sigmoid(a.value), a.slope * Sigmoid::slope(sigmoid(a.value))};
  }
  friend constexpr Dual rint(Dual a) { return {rint(a.value), T(0)}; }
  friend constexpr Dual trunc(Dual a) { return {trunc(a.value), T(0)}; }
  friend constexpr Dual fmod(Dual a, Dual b) {
    return {fmod(a.value, b.value), a.slope - trunc(a.value / b.value) * b.slope};
  }
  /// An operand that does not move adds nothing, also where its slope is NaN: log of a negative a.
  friend constexpr Dual pow(Dual a, Dual b) {
    const T by_a = select(a.slope == T(0), T(0), a.slope * Pow::slope0(a.value, b.value));
    const T by_b = select(b.slope == T(0), T(0), b.slope * Pow::slope1(a.value, b.value));
    return {pow(a.value, b.value), by_a + by_b};
  }
  template <class Mask>
  friend constexpr Dual select(Mask c, Dual a, Dual b) {
    return {select(c, a.value, b.value), select(c, a.slope, b.slope)};
  }
};

/// d slope_i / d x_j of S at its operands.
template <class S, int i, int j, class... T>
constexpr auto curvature(T... x) {
  using First = std::tuple_element_t<0, std::tuple<T...>>;
  return [&]<size_t... k>(std::index_sequence<k...>) {
    return pointwise::slope<S, i>(Dual<First>(x, First(k == j ? 1.0 : 0.0))...).slope;
  }
  (std::index_sequence_for<T...>());
}

/// g times slope i of S.
template <class S, int i, class T, class... X>
constexpr T times_slope(T g, X... x) {
  const T factor = slope<S, i>(x...);
  if constexpr (S::chooses) return select(factor == T(0), T(0), T(g * factor));
  return T(g * factor);
}

/// h times g times d slope_i / d x_j of S.
template <class S, int i, int j, class T, class... X>
constexpr T times_curvature(T h, T g, X... x) {
  if constexpr (S::chooses) return T(0);
  return T(h * g * curvature<S, i, j>(x...));
}

}  // namespace mezzo::pointwise
