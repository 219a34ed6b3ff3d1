// Long: one struct per op, and one place for all of them.
//
// Pointwise ops: one struct is one op. It states the value, the slopes, and what each slope reads; kernels on
// every device and dtype, the gradient, the second gradient and the tests are made from that
// (pointwise_traits.h).
//
// T is float, double, a CPU vector of either, a Dual (a value with its derivative) or an integer type, so
// formulas use T's operators, the functions named in `using` here, and select(condition, a, b) where a scalar
// would use ?:.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>

namespace mezzo::pointwise {

using std::abs, std::cos, std::exp, std::fmod, std::log, std::sin, std::sqrt, std::tanh, std::trunc;

template <class T>
requires std::is_arithmetic_v<T>
constexpr T select(bool condition, T a, T b) { return condition ? a : b; }

/// What op returns: the promoted dtype of its operands, the same but float32 for integers, or bool.
enum class Result { promoted, floating, boolean };

/// What a slope reads, as a set of bits: operands, or the output of a unary op.
enum Reads : unsigned { nothing = 0, first = 1, second = 2, third = 4, output = 8 };

/// Facts of an op; [low, high] is where its samples are drawn.
template <int n, Result r = Result::promoted>
struct Op {
  static constexpr int arity = n;
  static constexpr Result result = r;
  static constexpr bool takes_bool = true;  ///< false: bool operands are refused, as in PyTorch
  static constexpr bool divides = false;    ///< true: an integer divisor of 0 is refused
  static constexpr bool first_selects =
      false;  ///< true: operand 0 is a condition and has no part in promotion
  static constexpr double low = -2, high = 2;
};

// A formula a line: the layout below is kept by hand.
// clang-format off

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
  template <class T> static T value(T a, T b) { return T(a * b); }
  template <class T> static T slope0(T, T b) { return b; }
  template <class T> static T slope1(T a, T) { return a; }
};

struct Div : Op<2, Result::floating> {
  static constexpr double low = 0.5;
  static constexpr unsigned reads0 = second, reads1 = first | second;
  template <class T> static T value(T a, T b) { return a / b; }
  template <class T> static T slope0(T, T b) { return T(1) / b; }
  template <class T> static T slope1(T a, T b) { return -a / (b * b); }
};

/// Remainder with the sign of a, as in C: a - b * trunc(a / b).
struct Fmod : Op<2> {
  static constexpr bool takes_bool = false, divides = true;
  static constexpr double low = 0.5;
  static constexpr unsigned reads0 = nothing, reads1 = first | second;
  template <class T> static T value(T a, T b) {
    if constexpr (std::is_integral_v<T>) return T(a % b);
    else return fmod(a, b);
  }
  template <class T> static constexpr T slope0(T, T) { return T(1); }
  template <class T> static T slope1(T a, T b) { return -trunc(a / b); }
};

/// The larger one; NaN if either is. Equal operands share the gradient.
struct Maximum : Op<2> {
  static constexpr unsigned reads0 = first | second, reads1 = first | second;
  template <class T> static T value(T a, T b) { return select(a > b, a, select(a == a, b, a)); }
  template <class T> static T slope0(T a, T b) { return select(a > b, T(1), select(a == b, T(0.5), T(0))); }
  template <class T> static T slope1(T a, T b) { return slope0(b, a); }
};

/// The smaller one; NaN if either is. Equal operands share the gradient.
struct Minimum : Op<2> {
  static constexpr unsigned reads0 = first | second, reads1 = first | second;
  template <class T> static T value(T a, T b) { return select(a < b, a, select(a == a, b, a)); }
  template <class T> static T slope0(T a, T b) { return Maximum::slope0(b, a); }
  template <class T> static T slope1(T a, T b) { return Maximum::slope0(a, b); }
};

struct Neg : Op<1> {
  static constexpr bool takes_bool = false;
  static constexpr unsigned reads = nothing;
  template <class T> static T value(T x) { return T(-x); }
  template <class T> static constexpr T slope(T) { return T(-1); }
};

/// |x|, with slope 0 at 0.
struct Abs : Op<1> {
  static constexpr bool takes_bool = false;
  static constexpr unsigned reads = first;
  template <class T> static T value(T x) { return select(x < T(0), T(-x), T(x + T(0))); }  // + 0: |-0| is 0
  template <class T> static T slope(T x) { return select(x > T(0), T(1), select(x < T(0), T(-1), T(0))); }
};

struct Square : Op<1> {
  static constexpr unsigned reads = first;
  template <class T> static T value(T x) { return T(x * x); }
  template <class T> static T slope(T x) { return T(2) * x; }
};

// --- functions

struct Exp : Op<1, Result::floating> {
  static constexpr unsigned reads = output;
  template <class T> static T value(T x) { return exp(x); }
  template <class T> static T slope(T y) { return y; }
};

struct Log : Op<1, Result::floating> {
  static constexpr double low = 0.2;
  static constexpr unsigned reads = first;
  template <class T> static T value(T x) { return log(x); }
  template <class T> static T slope(T x) { return T(1) / x; }
};

struct Sqrt : Op<1, Result::floating> {
  static constexpr double low = 0.2;
  static constexpr unsigned reads = output;
  template <class T> static T value(T x) { return sqrt(x); }
  template <class T> static T slope(T y) { return T(0.5) / y; }
};

struct Sin : Op<1, Result::floating> {
  static constexpr unsigned reads = first;
  template <class T> static T value(T x) { return sin(x); }
  template <class T> static T slope(T x) { return cos(x); }
};

struct Cos : Op<1, Result::floating> {
  static constexpr unsigned reads = first;
  template <class T> static T value(T x) { return cos(x); }
  template <class T> static T slope(T x) { return -sin(x); }
};

struct Tanh : Op<1, Result::floating> {
  static constexpr unsigned reads = output;
  template <class T> static T value(T x) { return tanh(x); }
  template <class T> static T slope(T y) { return T(1) - y * y; }
};

/// 1 / (1 + exp(-x))
struct Sigmoid : Op<1, Result::floating> {
  static constexpr unsigned reads = output;
  template <class T> static T value(T x) { return T(1) / (T(1) + exp(-x)); }
  template <class T> static T slope(T y) { return y * (T(1) - y); }
};

/// log(1 / (1 + exp(-x))), with log(1 + u) for u = exp(-|x|) corrected by what 1 + u rounds off.
struct LogSigmoid : Op<1, Result::floating> {
  static constexpr bool takes_bool = false;
  static constexpr unsigned reads = first;
  template <class T> static T value(T x) {
    const T u = exp(-Abs::value(x)), w = T(1) + u;
    return select(x < T(0), x, T(0)) - select(w == T(1), u, log(w) * u / (w - T(1)));
  }
  template <class T> static T slope(T x) {
    const T u = exp(-Abs::value(x));
    return select(x < T(0), T(1), u) / (T(1) + u);
  }
};

/// max(x, 0), with slope 0 at 0; NaN stays NaN.
struct Relu : Op<1> {
  static constexpr bool takes_bool = false;
  static constexpr unsigned reads = output;
  template <class T> static T value(T x) { return select(x < T(0), T(0), x); }
  template <class T> static T slope(T y) { return select(y > T(0), T(1), T(0)); }
};

/// x / (1 + |x|)
struct Softsign : Op<1, Result::floating> {
  static constexpr bool takes_bool = false;
  static constexpr unsigned reads = first;
  template <class T> static T value(T x) { return x / (T(1) + Abs::value(x)); }
  template <class T> static T slope(T x) { return T(1) / Square::value(T(1) + Abs::value(x)); }
};

// --- choices and predicates

/// a where the condition holds, else b.
struct Where : Op<3> {
  static constexpr bool first_selects = true;
  static constexpr unsigned reads0 = nothing, reads1 = first, reads2 = first;
  template <class T> static T value(T c, T a, T b) { return select(c != T(0), a, b); }
  template <class T> static T slope1(T c, T, T) { return select(c != T(0), T(1), T(0)); }
  template <class T> static T slope2(T c, T, T) { return select(c != T(0), T(0), T(1)); }
};

using Predicate1 = Op<1, Result::boolean>;
using Predicate2 = Op<2, Result::boolean>;

struct Eq : Predicate2 { template <class T> static auto value(T a, T b) { return a == b; } };
struct Ne : Predicate2 { template <class T> static auto value(T a, T b) { return a != b; } };
struct Lt : Predicate2 { template <class T> static auto value(T a, T b) { return a < b; } };
struct Le : Predicate2 { template <class T> static auto value(T a, T b) { return a <= b; } };
struct Gt : Predicate2 { template <class T> static auto value(T a, T b) { return a > b; } };
struct Ge : Predicate2 { template <class T> static auto value(T a, T b) { return a >= b; } };

struct LogicalAnd : Predicate2 {
  template <class T> static bool value(T a, T b) { return a != T(0) && b != T(0); }
};
struct LogicalOr : Predicate2 {
  template <class T> static bool value(T a, T b) { return a != T(0) || b != T(0); }
};
struct LogicalXor : Predicate2 {
  template <class T> static bool value(T a, T b) { return (a != T(0)) != (b != T(0)); }
};
struct LogicalNot : Predicate1 {
  template <class T> static bool value(T a) { return a == T(0); }
};

// --- the list
// clang-format on

/// Every pointwise op. The position in the list indexes the kernel tables.
using Ops = std::tuple<Add, Sub, Mul, Div, Fmod, Maximum, Minimum, Neg, Abs, Square, Exp, Log, Sqrt, Sin, Cos,
                       Tanh, Sigmoid, LogSigmoid, Relu, Softsign, Where, Eq, Ne, Lt, Le, Gt, Ge, LogicalAnd,
                       LogicalOr, LogicalXor, LogicalNot>;

}  // namespace mezzo::pointwise

namespace mezzo {
inline constexpr size_t kPointwiseOps = std::tuple_size_v<pointwise::Ops>;
inline constexpr int kMaxArity = 3;
}  // namespace mezzo
