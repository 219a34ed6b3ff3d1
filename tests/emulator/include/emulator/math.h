// Arithmetic that nvcc has beyond <math.h>. Fast forms are as exact as the plain ones here.
#pragma once

#include <math.h>

#include <cmath>
#include <type_traits>

// glibc's <math.h> declares these for its own use and exports none: the definitions must match, C linkage and
// all.
extern "C" {
inline float __expf(float x) noexcept { return expf(x); }
inline float __exp10f(float x) noexcept { return powf(10.f, x); }
inline float __logf(float x) noexcept { return logf(x); }
inline float __log2f(float x) noexcept { return log2f(x); }
inline float __log10f(float x) noexcept { return log10f(x); }
inline float __powf(float x, float y) noexcept { return powf(x, y); }
inline float __sinf(float x) noexcept { return sinf(x); }
inline float __cosf(float x) noexcept { return cosf(x); }
inline float __tanf(float x) noexcept { return tanf(x); }
}
inline void __sincosf(float x, float* sine, float* cosine) {
  *sine = sinf(x);
  *cosine = cosf(x);
}

inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __frcp_rn(float a) { return 1.f / a; }
inline float __fsqrt_rn(float a) { return sqrtf(a); }
inline float __frsqrt_rn(float a) { return 1.f / sqrtf(a); }
inline float __fdividef(float a, float b) { return a / b; }
inline float fdividef(float a, float b) { return a / b; }
inline float __saturatef(float a) { return !(a > 0.f) ? 0.f : a > 1.f ? 1.f : a; }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }

inline float rsqrtf(float a) { return 1.f / sqrtf(a); }
inline double rsqrt(double a) { return 1. / ::sqrt(a); }
inline float rsqrt(float a) { return rsqrtf(a); }
inline float rcbrtf(float a) { return 1.f / cbrtf(a); }
inline float normcdff(float x) { return 0.5f * erfcf(-x * 0.70710678118654752f); }
inline double normcdf(double x) { return 0.5 * erfc(-x * 0.70710678118654752); }
inline void sincospif(float x, float* sine, float* cosine) {
  *sine = static_cast<float>(::sin(M_PI * x));
  *cosine = static_cast<float>(::cos(M_PI * x));
}
inline float sinpif(float x) { return static_cast<float>(::sin(M_PI * x)); }
inline float cospif(float x) { return static_cast<float>(::cos(M_PI * x)); }

inline int __float2int_rn(float x) { return static_cast<int>(nearbyintf(x)); }
inline int __float2int_rz(float x) { return static_cast<int>(x); }
inline int __float2int_rd(float x) { return static_cast<int>(floorf(x)); }
inline int __float2int_ru(float x) { return static_cast<int>(ceilf(x)); }
inline unsigned __float2uint_rn(float x) { return static_cast<unsigned>(nearbyintf(x)); }
inline unsigned __float2uint_rz(float x) { return static_cast<unsigned>(x); }
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }
inline float __double2float_rn(double x) { return static_cast<float>(x); }

/// CUDA's min and max take numbers of any two types and return what the usual conversions make of them; of a
/// number and a NaN they return the number.
template <class A, class B>
requires(std::is_arithmetic_v<A>&& std::is_arithmetic_v<B>) constexpr auto min(A a, B b) {
  using Result = std::common_type_t<A, B>;
  const auto x = static_cast<Result>(a), y = static_cast<Result>(b);
  if constexpr (std::is_floating_point_v<Result>)
    return std::fmin(x, y);
  else
    return x < y ? x : y;
}
template <class A, class B>
requires(std::is_arithmetic_v<A>&& std::is_arithmetic_v<B>) constexpr auto max(A a, B b) {
  using Result = std::common_type_t<A, B>;
  const auto x = static_cast<Result>(a), y = static_cast<Result>(b);
  if constexpr (std::is_floating_point_v<Result>)
    return std::fmax(x, y);
  else
    return x < y ? y : x;
}
