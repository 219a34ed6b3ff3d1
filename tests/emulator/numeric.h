// Numbers of the types that the libraries take, read and written as double.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace emulator {

enum class Type { float32, float64, float16, bfloat16 };

constexpr std::size_t size_of(Type type) { return type == Type::float64 ? 8 : type == Type::float32 ? 4 : 2; }

inline double to_double(float value) { return value; }
inline double to_double(double value) { return value; }
inline double to_double(__half value) { return __half2float(value); }
inline double to_double(__nv_bfloat16 value) { return __bfloat162float(value); }

/// Rounded once.
template <class T>
T from_double(double value) {
  return static_cast<T>(value);
}
template <>
inline __half from_double(double value) {
  return __double2half(value);
}
template <>
inline __nv_bfloat16 from_double(double value) {
  return __double2bfloat16(value);
}

/// Calls `function` with a value of the type, for its type alone.
template <class Function>
auto with_type(Type type, Function function) {
  switch (type) {
    case Type::float32:
      return function(float{});
    case Type::float64:
      return function(double{});
    case Type::float16:
      return function(__half{});
    default:
      return function(__nv_bfloat16{});
  }
}

/// Stores alpha * value + beta * what is there; what is there is not read if beta is 0, since it may be NaN.
template <class T>
void blend(T& target, double alpha, double value, double beta) {
  target = from_double<T>(beta == 0 ? alpha * value : alpha * value + beta * to_double(target));
}

/// What tensor cores make of a float: ten bits of mantissa.
inline double to_tensor_float(double value) {
  if (!std::isfinite(value)) return value;
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
  return std::bit_cast<float>((bits + 0x1000u) & ~0x1fffu);
}

}  // namespace emulator
