#include "tensor/cpu/convert.h"

#include <Eigen/Core>
#include <type_traits>

namespace mezzo::cpu {

namespace {

template <class T>
inline constexpr bool is_half_type = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;

/// static_cast that goes through float for the 16-bit types, as PyTorch's conversions do.
template <class To, class From>
To convert(From value) {
  if constexpr (is_half_type<From>)
    return convert<To>(static_cast<float>(value));
  else if constexpr (is_half_type<To>)
    return To(static_cast<float>(value));
  else
    return static_cast<To>(value);
}

template <class To, class From>
void convert_dense(To* out, const From* in, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = convert<To>(in[i]);
}

// The processor's own conversions, by Eigen's packets: the compilers do not find them in half_value() and
// half_bits().
namespace ei = Eigen::internal;
using FloatPacket = ei::packet_traits<float>::type;
using HalfPacket = ei::packet_traits<Eigen::half>::type;
constexpr int64_t kLanes = ei::packet_traits<float>::size;
constexpr bool kVectorised = ei::packet_traits<Eigen::half>::size == kLanes;

void convert_dense(float* out, const Half* in, int64_t n) {
  int64_t i = 0;
  if constexpr (kVectorised) {
    const auto* from = reinterpret_cast<const Eigen::half*>(in);
    for (; i + kLanes <= n; i += kLanes) {
      ei::pstoreu(out + i, ei::pcast<HalfPacket, FloatPacket>(ei::ploadu<HalfPacket>(from + i)));
    }
  }
  for (; i < n; ++i) out[i] = in[i];
}

void convert_dense(Half* out, const float* in, int64_t n) {
  int64_t i = 0;
  if constexpr (kVectorised) {
    auto* to = reinterpret_cast<Eigen::half*>(out);
    for (; i + kLanes <= n; i += kLanes) {
      ei::pstoreu(to + i, ei::pcast<FloatPacket, HalfPacket>(ei::ploadu<FloatPacket>(in + i)));
    }
  }
  for (; i < n; ++i) out[i] = Half(in[i]);
}

}  // namespace

template <class T>
void load_run(T* out, const void* in, DType dtype, int64_t stride, int64_t n) {
  dispatch(dtype, [&]<class E>(E) {
    const E* from = static_cast<const E*>(in);
    if (stride == 1) {
      convert_dense(out, from, n);
    } else if (stride == 0) {
      std::fill(out, out + n, convert<T>(*from));
    } else {
      for (int64_t i = 0; i < n; ++i) out[i] = convert<T>(from[i * stride]);
    }
  });
}

template <class T>
void store_run(void* out, DType dtype, int64_t stride, const T* in, int64_t n) {
  dispatch(dtype, [&]<class E>(E) {
    E* to = static_cast<E*>(out);
    if (stride == 1) {
      convert_dense(to, in, n);
    } else {
      for (int64_t i = 0; i < n; ++i) to[i * stride] = convert<E>(in[i]);
    }
  });
}

void round_run(BFloat16* out, const float* in, int64_t n) {
  using RoundedPacket = ei::packet_traits<Eigen::bfloat16>::type;
  int64_t i = 0;
  if constexpr (ei::packet_traits<Eigen::bfloat16>::size == kLanes) {
    auto* to = reinterpret_cast<Eigen::bfloat16*>(out);
    for (; i + kLanes <= n; i += kLanes)
      ei::pstoreu(to + i, ei::pcast<FloatPacket, RoundedPacket>(ei::ploadu<FloatPacket>(in + i)));
  }
  for (; i < n; ++i) out[i] = BFloat16(in[i]);
}

template void load_run(double*, const void*, DType, int64_t, int64_t);
template void load_run(float*, const void*, DType, int64_t, int64_t);
template void load_run(int64_t*, const void*, DType, int64_t, int64_t);
template void load_run(int32_t*, const void*, DType, int64_t, int64_t);
template void load_run(uint8_t*, const void*, DType, int64_t, int64_t);
template void load_run(bool*, const void*, DType, int64_t, int64_t);
template void store_run(void*, DType, int64_t, const double*, int64_t);
template void store_run(void*, DType, int64_t, const float*, int64_t);
template void store_run(void*, DType, int64_t, const int64_t*, int64_t);
template void store_run(void*, DType, int64_t, const int32_t*, int64_t);
template void store_run(void*, DType, int64_t, const uint8_t*, int64_t);
template void store_run(void*, DType, int64_t, const bool*, int64_t);

}  // namespace mezzo::cpu
