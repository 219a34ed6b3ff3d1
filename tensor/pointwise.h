// Long: one struct per op, and one place for all of them.
//
// Pointwise ops: one struct is one op. It states the value, the slopes, and what each slope reads; kernels on
// every device and dtype, the gradient, the second gradient and the tests are made from that
// (pointwise_traits.h).
//
// Formulas are constexpr so that CUDA kernels may call them (nvcc's --expt-relaxed-constexpr): no second
// copy. T is float, double, a CPU vector of either, a Dual (a value with its derivative) or an integer type,
// so formulas use T's operators, the functions named in `using` here, and select(condition, a, b) where a
// scalar would use ?:.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <tuple>
#include <type_traits>

namespace mezzo::pointwise {

using std::abs, std::ceil, std::cos, std::erf, std::exp, std::expm1, std::floor, std::fmod, std::log,
    std::log1p, std::log2, std::pow, std::rint, std::sin, std::sqrt, std::tanh, std::trunc;

template <class T>
requires std::is_arithmetic_v<T>
constexpr T select(bool condition, T a, T b) { return condition ? a : b; }

/// What op returns: the promoted dtype of its operands, the same but float32 for integers, or bool.
enum class Result { promoted, floating, boolean };

/// What an integer operand 1 must not hold; a call with it is refused.
enum class Refused { nothing, zero, negative };

/// What a slope reads, as a set of bits: operands, or the output of a unary op.
enum Reads : unsigned { nothing = 0, first = 1, second = 2, third = 4, output = 8 };

/// Facts of an op; [low, high] is where its samples are drawn.
template <int n, Result r = Result::promoted>
struct Op {
  static constexpr int arity = n;
  static constexpr Result result = r;
  static constexpr bool takes_bool = true;  ///< false: bool operands are refused, as in PyTorch
  static constexpr Refused refused = Refused::nothing;
  static constexpr bool first_selects =
      false;  ///< true: operand 0 is a condition and has no part in promotion
  static constexpr bool chooses =
      false;  ///< true: where the slope is 0, so is the gradient, whatever arrives, as in PyTorch
  static constexpr double low = -2, high = 2;
};

// A formula a line: the layout below is kept by hand.
// clang-format off

/// 1 / (1 + exp(-x)), as a function that Dual overloads: its slope is finite where exp(-x) is not.
template <class T> constexpr T sigmoid(T x) { return T(1) / (T(1) + exp(-x)); }

// --- arithmetic

struct Add : Op<2> {
  static constexpr unsigned reads0 = nothing, reads1 = nothing;
  template <class T> static constexpr T value(T a, T b) { return T(a + b); }
  template <class T> static constexpr T slope0(T, T) { return T(1); }
  template <class T> static constexpr T slope1(T, T) { return T(1); }
};

struct Sub : Op<2> {
  static constexpr bool takes_bool = false;
  static constexpr unsigned reads0 = nothing, reads1 = nothing;
  template <class T> static constexpr T value(T a, T b) { return T(a - b); }
  template <class T> static constexpr T slope0(T, T) { return T(1); }
  template <class T> static constexpr T slope1(T, T) { return T(-1); }
};

struct Mul : Op<2> {
  static constexpr unsigned reads0 = second, reads1 = first;
  template <class T> static constexpr T value(T a, T b) { return T(a * b); }
  template <class T> static constexpr T slope0(T, T b) { return b; }
  template <class T> static constexpr T slope1(T a, T) { return a; }
};

struct Div : Op<2, Result::floating> {
  static constexpr double low = 0.5;
  static constexpr unsigned reads0 = second, reads1 = first | second;
  template <class T> static constexpr T value(T a, T b) { return a / b; }
  template <class T> static constexpr T slope0(T, T b) { return T(1) / b; }
  template <class T> static constexpr T slope1(T a, T b) { return -a / (b * b); }
};

/// Remainder with the sign of a, as in C: a - b * trunc(a / b).
struct Fmod : Op<2> {
  static constexpr bool takes_bool = false;
  static constexpr Refused refused = Refused::zero;
  static constexpr double low = 0.5;
  static constexpr unsigned reads0 = nothing, reads1 = first | second;
  template <class T> static constexpr T value(T a, T b) {
    if constexpr (!std::is_integral_v<T>) return fmod(a, b);
    else if constexpr (std::is_signed_v<T>) return b == T(-1) ? T(0) : T(a % b);  // the smallest a % -1 traps
    else return T(a % b);
  }
  template <class T> static constexpr T slope0(T, T) { return T(1); }
  template <class T> static constexpr T slope1(T a, T b) { return -trunc(a / b); }
};

/// x where a remainder r has not the sign of b, else -0, which changes no sum, not even -0.
template <class T> constexpr T if_signs_differ(T r, T b, T x) {
  return select(b < T(0), select(r > T(0), x, T(-0.0)), select(r < T(0), x, T(-0.0)));
}

/// a / b rounded down, exactly: by the remainder, since the rounded a / b may have reached the next integer.
struct FloorDivide : Op<2> {
  static constexpr bool takes_bool = false;
  static constexpr Refused refused = Refused::zero;
  static constexpr double low = 0.5;
  static constexpr unsigned reads0 = nothing, reads1 = nothing;
  template <class T> static constexpr T value(T a, T b) {
    if constexpr (std::is_signed_v<T> && std::is_integral_v<T>) {
      if (b == T(-1)) return T(-static_cast<uint64_t>(a));  // wraps, where / traps
    }
    const T r = Fmod::value(a, b), q = T(T(a - r) / b + if_signs_differ(r, b, T(-1)));
    if constexpr (std::is_integral_v<T>) return q;
    else return select(b == T(0), a / b, select(q == T(0), a / b * T(0), rint(q)));  // a / b: the sign of 0
  }
  template <class T> static constexpr T slope0(T, T) { return T(0); }
  template <class T> static constexpr T slope1(T, T) { return T(0); }
};

/// Remainder with the sign of b: a - b * floor(a / b).
struct Remainder : Op<2> {
  static constexpr bool takes_bool = false;
  static constexpr Refused refused = Refused::zero;
  static constexpr double low = 0.5;
  static constexpr unsigned reads0 = nothing, reads1 = first | second;
  template <class T> static constexpr T value(T a, T b) {
    const T r = Fmod::value(a, b);
    return T(r + if_signs_differ(r, b, b));
  }
  template <class T> static constexpr T slope0(T, T) { return T(1); }
  template <class T> static constexpr T slope1(T a, T b) { return -FloorDivide::value(a, b); }
};

/// a^b; integers wrap. As in PyTorch slope 0 in a where b is 0, and in b where a is 0 and b not negative.
struct Pow : Op<2> {
  static constexpr bool takes_bool = false;
  static constexpr Refused refused = Refused::negative;
  static constexpr double low = 0.2;
  static constexpr unsigned reads0 = first | second, reads1 = first | second;
  template <class T> static constexpr T value(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      uint64_t result = 1, square = static_cast<uint64_t>(a);
      for (auto left = static_cast<uint64_t>(b); left != 0; left >>= 1, square *= square) {
        if (left & 1u) result *= square;
      }
      return static_cast<T>(result);
    } else {
      return pow(a, b);
    }
  }
  template <class T> static constexpr T slope0(T a, T b) {
    return select(b == T(0), T(0), b * pow(a, b - T(1)));
  }
  template <class T> static constexpr T slope1(T a, T b) {
    const T slope = pow(a, b) * log(a);
    return select(a == T(0), select(b < T(0), slope, T(0)), slope);
  }
};

/// The larger one; NaN if either is, and then both have its gradient, as in PyTorch. Equal operands share it.
struct Maximum : Op<2> {
  static constexpr bool chooses = true;
  static constexpr unsigned reads0 = first | second, reads1 = first | second;
  template <class T> static constexpr T value(T a, T b) { return select(a > b, a, select(a == a, b, a)); }
  template <class T> static constexpr T slope0(T a, T b) {
    return select(a < b, T(0), select(a == b, T(0.5), T(1)));
  }
  template <class T> static constexpr T slope1(T a, T b) { return slope0(b, a); }
};

/// The smaller one, with the gradients of maximum.
struct Minimum : Op<2> {
  static constexpr bool chooses = true;
  static constexpr unsigned reads0 = first | second, reads1 = first | second;
  template <class T> static constexpr T value(T a, T b) { return select(a < b, a, select(a == a, b, a)); }
  template <class T> static constexpr T slope0(T a, T b) { return Maximum::slope0(b, a); }
  template <class T> static constexpr T slope1(T a, T b) { return Maximum::slope0(a, b); }
};

/// max(x, low); at x = low the gradient is low's, so that x has slope 0 there, as in relu.
struct ClampMin : Op<2> {
  static constexpr bool takes_bool = false, chooses = true;
  static constexpr unsigned reads0 = first | second, reads1 = first | second;
  template <class T> static constexpr T value(T x, T low) { return Maximum::value(x, low); }
  template <class T> static constexpr T slope0(T x, T low) { return select(x > low, T(1), T(0)); }
  template <class T> static constexpr T slope1(T x, T low) { return select(x > low, T(0), T(1)); }
};

/// min(x, high); at x = high the gradient is high's.
struct ClampMax : Op<2> {
  static constexpr bool takes_bool = false, chooses = true;
  static constexpr unsigned reads0 = first | second, reads1 = first | second;
  template <class T> static constexpr T value(T x, T high) { return Minimum::value(x, high); }
  template <class T> static constexpr T slope0(T x, T high) { return select(x < high, T(1), T(0)); }
  template <class T> static constexpr T slope1(T x, T high) { return select(x < high, T(0), T(1)); }
};

struct Neg : Op<1> {
  static constexpr bool takes_bool = false;
  static constexpr unsigned reads = nothing;
  template <class T> static constexpr T value(T x) { return T(-x); }
  template <class T> static constexpr T slope(T) { return T(-1); }
};

/// |x|, with slope 0 at 0.
struct Abs : Op<1> {
  static constexpr bool takes_bool = false;
  static constexpr unsigned reads = first;
  template <class T> static constexpr T value(T x) {
    return select(x < T(0), T(-x), T(x + T(0)));  // + 0: |-0| is 0
  }
  template <class T> static constexpr T slope(T x) {
    return select(x > T(0), T(1), select(x < T(0), T(-1), T(0)));
  }
};

struct Square : Op<1> {
  static constexpr unsigned reads = first;
  template <class T> static constexpr T value(T x) { return T(x * x); }
  template <class T> static constexpr T slope(T x) { return T(2) * x; }
};

/// a + weight * (b - a), from the nearer end, so that weight 1 gives b.
struct Lerp : Op<3, Result::floating> {
  static constexpr unsigned reads0 = third, reads1 = third, reads2 = first | second;
  template <class T> static constexpr T value(T a, T b, T weight) {
    return select(Abs::value(weight) < T(0.5), a + weight * (b - a), b - (b - a) * (T(1) - weight));
  }
  template <class T> static constexpr T slope0(T, T, T weight) { return T(1) - weight; }
  template <class T> static constexpr T slope1(T, T, T weight) { return weight; }
  template <class T> static constexpr T slope2(T a, T b, T) { return b - a; }
};

/// -1, 0 or 1; 0 for NaN.
struct Sign : Op<1> {
  static constexpr bool chooses = true;
  static constexpr unsigned reads = nothing;
  template <class T> static constexpr T value(T x) { return Abs::slope(x); }
  template <class T> static constexpr T slope(T) { return T(0); }
};

/// What the roundings share: integers stay as they are, and the slope is 0 everywhere.
struct Rounding : Op<1> {
  static constexpr bool takes_bool = false, chooses = true;
  static constexpr unsigned reads = nothing;
  template <class T> static constexpr T slope(T) { return T(0); }
};

struct Floor : Rounding {
  template <class T> static constexpr T value(T x) {
    if constexpr (std::is_integral_v<T>) return x;
    else return floor(x);
  }
};
struct Ceil : Rounding {
  template <class T> static constexpr T value(T x) {
    if constexpr (std::is_integral_v<T>) return x;
    else return ceil(x);
  }
};
/// To the nearest integer, halves to the even one.
struct Round : Rounding {
  template <class T> static constexpr T value(T x) {
    if constexpr (std::is_integral_v<T>) return x;
    else return rint(x);
  }
};
struct Trunc : Rounding {
  template <class T> static constexpr T value(T x) {
    if constexpr (std::is_integral_v<T>) return x;
    else return trunc(x);
  }
};

// --- functions

struct Exp : Op<1, Result::floating> {
  static constexpr unsigned reads = output;
  template <class T> static constexpr T value(T x) { return exp(x); }
  template <class T> static constexpr T slope(T y) { return y; }
};

struct Log : Op<1, Result::floating> {
  static constexpr double low = 0.2;
  static constexpr unsigned reads = first;
  template <class T> static constexpr T value(T x) { return log(x); }
  template <class T> static constexpr T slope(T x) { return T(1) / x; }
};

/// exp(x) - 1, exact for small x.
struct Expm1 : Op<1, Result::floating> {
  static constexpr unsigned reads = output;
  template <class T> static constexpr T value(T x) { return expm1(x); }
  template <class T> static constexpr T slope(T y) { return y + T(1); }
};

/// log(1 + x), exact for small x.
struct Log1p : Op<1, Result::floating> {
  static constexpr double low = -0.5;
  static constexpr unsigned reads = first;
  template <class T> static constexpr T value(T x) { return log1p(x); }
  template <class T> static constexpr T slope(T x) { return T(1) / (T(1) + x); }
};

struct Log2 : Op<1, Result::floating> {
  static constexpr double low = 0.2;
  static constexpr unsigned reads = first;
  template <class T> static constexpr T value(T x) { return log2(x); }
  template <class T> static constexpr T slope(T x) { return T(1) / (T(std::numbers::ln2) * x); }
};

struct Sqrt : Op<1, Result::floating> {
  static constexpr double low = 0.2;
  static constexpr unsigned reads = output;
  template <class T> static constexpr T value(T x) { return sqrt(x); }
  template <class T> static constexpr T slope(T y) { return T(0.5) / y; }
};

struct Rsqrt : Op<1, Result::floating> {
  static constexpr double low = 0.5;
  static constexpr unsigned reads = output;
  template <class T> static constexpr T value(T x) { return T(1) / sqrt(x); }
  template <class T> static constexpr T slope(T y) { return T(-0.5) * y * y * y; }
};

struct Reciprocal : Op<1, Result::floating> {
  static constexpr double low = 0.5;
  static constexpr unsigned reads = output;
  template <class T> static constexpr T value(T x) { return T(1) / x; }
  template <class T> static constexpr T slope(T y) { return -y * y; }
};

struct Sin : Op<1, Result::floating> {
  static constexpr unsigned reads = first;
  template <class T> static constexpr T value(T x) { return sin(x); }
  template <class T> static constexpr T slope(T x) { return cos(x); }
};

struct Cos : Op<1, Result::floating> {
  static constexpr unsigned reads = first;
  template <class T> static constexpr T value(T x) { return cos(x); }
  template <class T> static constexpr T slope(T x) { return -sin(x); }
};

struct Tanh : Op<1, Result::floating> {
  static constexpr unsigned reads = output;
  template <class T> static constexpr T value(T x) { return tanh(x); }
  template <class T> static constexpr T slope(T y) { return T(1) - y * y; }
};

/// 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x.
struct Erf : Op<1, Result::floating> {
  static constexpr unsigned reads = first;
  template <class T> static constexpr T value(T x) { return erf(x); }
  template <class T> static constexpr T slope(T x) { return T(2 * std::numbers::inv_sqrtpi) * exp(-(x * x)); }
};

/// 1 / (1 + exp(-x))
struct Sigmoid : Op<1, Result::floating> {
  static constexpr unsigned reads = output;
  template <class T> static constexpr T value(T x) { return sigmoid(x); }
  template <class T> static constexpr T slope(T y) { return y * (T(1) - y); }
};

/// log(1 / (1 + exp(-x))), with log(1 + u) for u = exp(-|x|) corrected by what 1 + u rounds off.
struct LogSigmoid : Op<1, Result::floating> {
  static constexpr bool takes_bool = false;
  static constexpr unsigned reads = first;
  template <class T> static constexpr T value(T x) {
    const T u = exp(-Abs::value(x)), w = T(1) + u;
    return select(x < T(0), x, T(0)) - select(w == T(1), u, log(w) * u / (w - T(1)));
  }
  template <class T> static constexpr T slope(T x) {
    const T u = exp(-Abs::value(x));
    return select(x < T(0), T(1), u) / (T(1) + u);
  }
};

/// max(x, 0), with slope 0 at 0; NaN stays NaN, and lets the gradient pass, as in PyTorch.
struct Relu : Op<1> {
  static constexpr bool takes_bool = false, chooses = true;
  static constexpr unsigned reads = output;
  template <class T> static constexpr T value(T x) { return select(x < T(0), T(0), x); }
  template <class T> static constexpr T slope(T y) { return select(y == T(0), T(0), T(1)); }
};

/// x / (1 + |x|)
struct Softsign : Op<1, Result::floating> {
  static constexpr bool takes_bool = false;
  static constexpr unsigned reads = first;
  template <class T> static constexpr T value(T x) { return x / (T(1) + Abs::value(x)); }
  template <class T> static constexpr T slope(T x) { return T(1) / Square::value(T(1) + Abs::value(x)); }
};

/// x P(x), P the normal distribution function. Hendrycks and Gimpel, "Gaussian Error Linear Units" (2016).
struct Gelu : Op<1, Result::floating> {
  static constexpr unsigned reads = first;
  template <class T> static constexpr T probability(T x) {
    return T(0.5) * (T(1) + erf(x * T(1 / std::numbers::sqrt2)));
  }
  template <class T> static constexpr T value(T x) { return x * probability(x); }
  template <class T> static constexpr T density(T x) {
    return T(std::numbers::inv_sqrtpi / std::numbers::sqrt2) * exp(T(-0.5) * x * x);
  }
  template <class T> static constexpr T slope(T x) { return probability(x) + x * density(x); }
};

/// gelu with P(x) = (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2.
struct GeluTanh : Op<1, Result::floating> {
  static constexpr unsigned reads = first;
  static constexpr double scale = std::numbers::sqrt2 * std::numbers::inv_sqrtpi, cubic = 0.044715;
  template <class T> static constexpr T bend(T x) { return tanh(T(scale) * (x + T(cubic) * x * x * x)); }
  template <class T> static constexpr T value(T x) { return T(0.5) * x * (T(1) + bend(x)); }
  template <class T> static constexpr T slope(T x) {
    const T t = bend(x), inner = T(scale) * (T(1) + T(3 * cubic) * x * x);
    return T(0.5) * (T(1) + t + x * (T(1) - t * t) * inner);
  }
};

/// x sigmoid(x)
struct Silu : Op<1, Result::floating> {
  static constexpr unsigned reads = first;
  template <class T> static constexpr T value(T x) { return x / (T(1) + exp(-x)); }
  template <class T> static constexpr T slope(T x) {
    const T s = sigmoid(x);
    return s * (T(1) + x * (T(1) - s));
  }
};

/// log(1 + exp(x)); x itself above 20, where exp(-x) is lost in it.
struct Softplus : Op<1, Result::floating> {
  static constexpr unsigned reads = first;
  template <class T> static constexpr T value(T x) { return select(x > T(20), x, log1p(exp(x))); }
  template <class T> static constexpr T slope(T x) { return select(x > T(20), T(1), sigmoid(x)); }
};

// --- choices and predicates

/// a where the condition holds, else b.
struct Where : Op<3> {
  static constexpr bool first_selects = true, chooses = true;
  static constexpr unsigned reads0 = nothing, reads1 = first, reads2 = first;
  template <class T> static constexpr T value(T c, T a, T b) { return select(c != T(0), a, b); }
  template <class T> static constexpr T slope1(T c, T, T) { return select(c != T(0), T(1), T(0)); }
  template <class T> static constexpr T slope2(T c, T, T) { return select(c != T(0), T(0), T(1)); }
};

using Predicate1 = Op<1, Result::boolean>;
using Predicate2 = Op<2, Result::boolean>;

struct Eq : Predicate2 { template <class T> static constexpr auto value(T a, T b) { return a == b; } };
struct Ne : Predicate2 { template <class T> static constexpr auto value(T a, T b) { return a != b; } };
struct Lt : Predicate2 { template <class T> static constexpr auto value(T a, T b) { return a < b; } };
struct Le : Predicate2 { template <class T> static constexpr auto value(T a, T b) { return a <= b; } };
struct Gt : Predicate2 { template <class T> static constexpr auto value(T a, T b) { return a > b; } };
struct Ge : Predicate2 { template <class T> static constexpr auto value(T a, T b) { return a >= b; } };

struct LogicalAnd : Predicate2 {
  template <class T> static constexpr bool value(T a, T b) { return a != T(0) && b != T(0); }
};
struct LogicalOr : Predicate2 {
  template <class T> static constexpr bool value(T a, T b) { return a != T(0) || b != T(0); }
};
struct LogicalXor : Predicate2 {
  template <class T> static constexpr bool value(T a, T b) { return (a != T(0)) != (b != T(0)); }
};
struct LogicalNot : Predicate1 {
  template <class T> static constexpr bool value(T a) { return a == T(0); }
};

// x - x is 0 for numbers, and NaN for infinities and NaN.
struct IsNan : Predicate1 { template <class T> static constexpr bool value(T x) { return x != x; } };
struct IsInf : Predicate1 {
  template <class T> static constexpr bool value(T x) { return x == x && T(x - x) != T(0); }
};
struct IsFinite : Predicate1 {
  template <class T> static constexpr bool value(T x) { return T(x - x) == T(0); }
};

// --- the list
// clang-format on

/// Every pointwise op. The position in the list indexes the kernel tables.
using Ops = std::tuple<Add, Sub, Mul, Div, FloorDivide, Remainder, Fmod, Pow, Maximum, Minimum, ClampMin,
                       ClampMax, Lerp, Neg, Abs, Sign, Square, Floor, Ceil, Round, Trunc, Exp, Expm1, Log,
                       Log1p, Log2, Sqrt, Rsqrt, Reciprocal, Sin, Cos, Tanh, Erf, Sigmoid, LogSigmoid, Relu,
                       Softsign, Gelu, GeluTanh, Silu, Softplus, Where, Eq, Ne, Lt, Le, Gt, Ge, LogicalAnd,
                       LogicalOr, LogicalXor, LogicalNot, IsNan, IsInf, IsFinite>;

}  // namespace mezzo::pointwise

namespace mezzo {
inline constexpr size_t kPointwiseOps = std::tuple_size_v<pointwise::Ops>;
inline constexpr int kMaxArity = 3;
}  // namespace mezzo
