// Elements of tensors in kernels: the C++ types of a dtype, and reading and writing one element in the type
// that arithmetic runs in.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "cuda/launch.cuh"
#include "tensor/dtype.h"

namespace mezzo::cuda {

/// The floating types that arithmetic runs in float for.
template <class E>
inline constexpr bool is_16_bit = std::is_same_v<E, Half> || std::is_same_v<E, BFloat16>;

/// The C++ type of compute_type(dtype).
template <class E>
using Compute = std::conditional_t<is_16_bit<E>, float, E>;

/// f(E{}) with the type of a floating dtype; nothing for others.
template <class F>
void dispatch_floating(DType dtype, F&& f) {
  dispatch(dtype, [&]<class E>(E) {
    if constexpr (is_floating(dtype_of<E>)) f(E{});
  });
}

/// f(Bits{}) with the unsigned type of the dtype's size: moving elements needs to know no more.
template <class F>
void dispatch_bits(DType dtype, F&& f) {
  switch (size_of(dtype)) {
    case 8:
      return f(uint64_t{});
    case 4:
      return f(uint32_t{});
    case 2:
      return f(uint16_t{});
    default:
      return f(uint8_t{});
  }
}

/// `value` as T. The 16-bit types convert by the device's own instructions, rounding to the nearest, as
/// dtype.h does.
template <class T, class E>
__device__ T convert_to(E value) {
  if constexpr (std::is_same_v<T, E>) {
    return value;
  } else if constexpr (std::is_same_v<E, Half>) {
    return static_cast<T>(__half2float(__ushort_as_half(value.bits)));
  } else if constexpr (std::is_same_v<E, BFloat16>) {
    return static_cast<T>(__bfloat162float(__ushort_as_bfloat16(value.bits)));
  } else if constexpr (std::is_same_v<T, Half>) {
    Half half;
    half.bits = __half_as_ushort(__float2half_rn(static_cast<float>(value)));
    return half;
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    BFloat16 half;
    half.bits = __bfloat16_as_ushort(__float2bfloat16_rn(static_cast<float>(value)));
    return half;
  } else if constexpr (std::is_same_v<T, uint8_t> && std::is_floating_point_v<E>) {
    return static_cast<T>(static_cast<int64_t>(value));  // negative numbers wrap, as on the CPU
  } else {
    return static_cast<T>(value);
  }
}

/// The element at `data[i]` of a dtype that is known at run time, and the way back.
template <class T>
__device__ T load(const void* data, DType dtype, int64_t i) {
  switch (dtype) {
    case DType::float64:
      return convert_to<T>(static_cast<const double*>(data)[i]);
    case DType::float32:
      return convert_to<T>(static_cast<const float*>(data)[i]);
    case DType::float16:
      return convert_to<T>(static_cast<const Half*>(data)[i]);
    case DType::bfloat16:
      return convert_to<T>(static_cast<const BFloat16*>(data)[i]);
    case DType::int64:
      return convert_to<T>(static_cast<const int64_t*>(data)[i]);
    case DType::int32:
      return convert_to<T>(static_cast<const int32_t*>(data)[i]);
    case DType::uint8:
      return convert_to<T>(static_cast<const uint8_t*>(data)[i]);
    case DType::bool_:
      break;
  }
  return convert_to<T>(static_cast<const bool*>(data)[i]);
}

template <class T>
__device__ void store(void* data, DType dtype, int64_t i, T value) {
  switch (dtype) {
    case DType::float64:
      static_cast<double*>(data)[i] = convert_to<double>(value);
      return;
    case DType::float32:
      static_cast<float*>(data)[i] = convert_to<float>(value);
      return;
    case DType::float16:
      static_cast<Half*>(data)[i] = convert_to<Half>(value);
      return;
    case DType::bfloat16:
      static_cast<BFloat16*>(data)[i] = convert_to<BFloat16>(value);
      return;
    case DType::int64:
      static_cast<int64_t*>(data)[i] = convert_to<int64_t>(value);
      return;
    case DType::int32:
      static_cast<int32_t*>(data)[i] = convert_to<int32_t>(value);
      return;
    case DType::uint8:
      static_cast<uint8_t*>(data)[i] = convert_to<uint8_t>(value);
      return;
    case DType::bool_:
      break;
  }
  static_cast<bool*>(data)[i] = convert_to<bool>(value);
}

}  // namespace mezzo::cuda
