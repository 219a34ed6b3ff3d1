// Element types: their tags, their two 16-bit values, and what holds for each of them.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <type_traits>

namespace mezzo {

/// Element type of a tensor. The values index arrays; keep them dense.
enum class DType : uint8_t { float64, float32, float16, bfloat16, int64, int32, uint8, bool_ };
using enum DType;
inline constexpr int kDTypes = 8;

/// Nearest IEEE binary16 to `value`, ties to even; subnormals are kept, 65520 and above become infinity.
constexpr uint16_t half_bits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value), magnitude = bits & 0x7fffffffu;
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  if (magnitude > 0x7f800000u) return sign | 0x7e00u;   // NaN
  if (magnitude >= 0x47800000u) return sign | 0x7c00u;  // 65536 and above
  if (magnitude < 0x38800000u) {                        // below 2^-14: adding 0.5 lets the FPU round at 2^-24
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return sign | static_cast<uint16_t>(std::bit_cast<uint32_t>(shifted) - 0x3f000000u);
  }
  const uint32_t rounded = magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u);
  return sign | static_cast<uint16_t>(rounded >> 13);
}

/// The float that equals a binary16, exactly.
constexpr float half_value(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16, magnitude = half & 0x7fffu;
  if (magnitude >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
  if (magnitude < 0x400u) {  // subnormal or zero: magnitude * 2^-24
    const float value = static_cast<float>(magnitude) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
  }
  return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000u));
}

/// Nearest bfloat16 to `value`, ties to even: the upper half of a float.
constexpr uint16_t bfloat16_bits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u)
    return static_cast<uint16_t>((bits >> 16) | 0x40u);  // NaN stays NaN
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/// A 16-bit IEEE value (5 bits of exponent, 10 of mantissa): storage only, arithmetic happens in float.
struct Half {
  uint16_t bits = 0;
  constexpr Half() = default;
  constexpr explicit Half(float value) : bits(half_bits(value)) {}
  constexpr operator float() const { return half_value(bits); }
};

/// A 16-bit value with float's range (8 bits of exponent, 7 of mantissa): storage only.
struct BFloat16 {
  uint16_t bits = 0;
  constexpr BFloat16() = default;
  constexpr explicit BFloat16(float value) : bits(bfloat16_bits(value)) {}
  constexpr operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};

/// Of each dtype; inside size_of compilers would copy it to the stack at every call.
inline constexpr size_t kElementSizes[kDTypes] = {8, 4, 2, 2, 8, 4, 1, 1};

/// Bytes of one element.
constexpr size_t size_of(DType dtype) { return kElementSizes[static_cast<int>(dtype)]; }

/// The name as PyTorch writes it, without "torch.".
constexpr std::string_view name_of(DType dtype) {
  constexpr std::string_view names[kDTypes] = {"float64", "float32", "float16", "bfloat16",
                                               "int64",   "int32",   "uint8",   "bool"};
  return names[static_cast<int>(dtype)];
}

constexpr bool is_floating(DType dtype) { return dtype <= DType::bfloat16; }
constexpr bool is_half(DType dtype) { return dtype == DType::float16 || dtype == DType::bfloat16; }
constexpr bool is_integral(DType dtype) { return dtype > DType::bfloat16 && dtype != DType::bool_; }

/// The largest finite value of a floating dtype.
constexpr double largest_of(DType dtype) {
  constexpr double values[] = {std::numeric_limits<double>::max(), std::numeric_limits<float>::max(), 65504,
                               0x1.fep127};
  return values[static_cast<int>(dtype)];
}

/// The type that arithmetic on `dtype` runs in: float for the 16-bit types, else the type itself.
constexpr DType compute_type(DType dtype) { return is_half(dtype) ? DType::float32 : dtype; }

/// Tag of a C++ type; the inverse of `dispatch`.
template <class T>
inline constexpr DType dtype_of = DType::float32;
template <>
inline constexpr DType dtype_of<double> = DType::float64;
template <>
inline constexpr DType dtype_of<Half> = DType::float16;
template <>
inline constexpr DType dtype_of<BFloat16> = DType::bfloat16;
template <>
inline constexpr DType dtype_of<int64_t> = DType::int64;
template <>
inline constexpr DType dtype_of<int32_t> = DType::int32;
template <>
inline constexpr DType dtype_of<uint8_t> = DType::uint8;
template <>
inline constexpr DType dtype_of<bool> = DType::bool_;

/// A C++ type that a tensor can hold.
template <class T>
concept Element = dtype_of<T>
!= DType::float32 || std::is_same_v<T, float>;

/// Calls `f(T{})` with the C++ type of `dtype`: the one place where a tag becomes a type.
template <class F>
decltype(auto) dispatch(DType dtype, F&& f) {
  switch (dtype) {
    case DType::float64:
      return f(double{});
    case DType::float32:
      return f(float{});
    case DType::float16:
      return f(Half{});
    case DType::bfloat16:
      return f(BFloat16{});
    case DType::int64:
      return f(int64_t{});
    case DType::int32:
      return f(int32_t{});
    case DType::uint8:
      return f(uint8_t{});
    case DType::bool_:
      break;
  }
  return f(bool{});
}

}  // namespace mezzo
